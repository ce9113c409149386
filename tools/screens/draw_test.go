package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var at = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

// fake answers like a Prometheus: every expression finds as many series as answer gives.
func fake(t *testing.T, answer func(expr string) []map[string]string) *asker {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expr := r.FormValue("query")
		if strings.Contains(expr, "$") || expr == "refused" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status": "error", "error": "parse error"}`)
			return
		}
		type found struct {
			Metric map[string]string `json:"metric"`
			Value  []any             `json:"value,omitempty"`
			Values [][]any           `json:"values,omitempty"`
		}
		result := []found{}
		for i, labels := range answer(expr) {
			f := found{Metric: labels}
			value := func(at float64) []any {
				return []any{at, strconv.FormatFloat(float64(i+1)*(2+math.Sin(at/20)), 'g', -1, 64)}
			}
			if strings.HasSuffix(r.URL.Path, "_range") {
				from, _ := strconv.ParseFloat(r.FormValue("start"), 64)
				to, _ := strconv.ParseFloat(r.FormValue("end"), 64)
				for at := from; at <= to; at++ {
					f.Values = append(f.Values, value(at))
				}
			} else {
				f.Value = value(float64(at.Unix()))
			}
			result = append(result, f)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}})
	}))
	t.Cleanup(server.Close)
	return newAsker(server.URL, at, 3*time.Minute, time.Second, 15*time.Second)
}

func some(string) (all []map[string]string) {
	for i := range 7 {
		all = append(all, map[string]string{
			"le": strconv.Itoa(1 << i), "instance": fmt.Sprintf("n%d", i), "namespace": "default", "queue": fmt.Sprintf("queue-%d", i),
			"outcome": []string{"succeeded", "dead", "x"}[i%3], "method": "/fermata.v1.JobService/GetJob", "reason": "backoff",
		})
	}
	return all
}

func picture(t *testing.T, path string) image.Image {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// Whatever the shipped dashboards use can be drawn, small enough for a page that shows it,
// and the same each time.
func TestShippedDashboardsCanBeDrawn(t *testing.T) {
	a := fake(t, some)
	paths, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(paths) < 6 {
		t.Fatalf("dashboards %v (%v)", paths, err)
	}
	for _, path := range paths {
		d, err := readDashboard(path)
		if err != nil {
			t.Fatal(err)
		}
		var texts [][]byte
		for len(texts) < 1 || len(texts) < 2 && d.Title == "Fermata / Overview" {
			out := filepath.Join(t.TempDir(), "a.png")
			if err := depict(t.Context(), a, d, []string{"Others"}, out, 1200); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			text, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
			rows := 0
			for _, p := range d.Panels {
				rows = max(rows, p.GridPos.Y+p.GridPos.H)
			}
			if b := picture(t, out).Bounds(); b.Dx() != 1200 || b.Dy() != header+rows*38+8 {
				t.Errorf("%s: %v for %d rows", path, b, rows)
			}
		}
		if last := texts[len(texts)-1]; !bytes.Equal(texts[0], last) || len(last) > limit {
			t.Errorf("%s: the same answers give %d and %d bytes, want the same, %d or less", path, len(texts[0]), len(last), limit)
		}
	}
}

// one is a dashboard of one panel, 12 columns and 8 rows large.
func one(t *testing.T, kind, defaults, rest string) *dashboard {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d.json")
	text := fmt.Sprintf(`{"title": "T", "panels": [{"type": %q, "title": "P", "gridPos": {"h": 8, "w": 12, "x": 0, "y": 0}, "fieldConfig": {"defaults": {%s}, "overrides": []}, %s}]}`, kind, defaults, rest)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := readDashboard(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// points counts those of a colour.
func points(img image.Image, want color.RGBA) (n int) {
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if distance(color.RGBAModel.Convert(img.At(x, y)).(color.RGBA), want) < 300 {
				n++
			}
		}
	}
	return n
}

func TestThresholdsColourFigures(t *testing.T) {
	const steps = `"unit": "short", "thresholds": {"steps": [{"color": "green", "value": null}, {"color": "red", "value": %d}]}`
	for limit, want := range map[int]string{0: "red", 1000: "green"} {
		d := one(t, "stat", fmt.Sprintf(steps, limit), `"targets": [{"expr": "a"}]`)
		out := filepath.Join(t.TempDir(), "a.png")
		if err := depict(t.Context(), fake(t, some), d, nil, out, 1000); err != nil {
			t.Fatal(err)
		}
		img := picture(t, out)
		for _, name := range []string{"red", "green"} {
			if n := points(img, rgb(named[name])); (n > 50) != (name == want) {
				t.Errorf("limit %d: %d points are %s, want %s", limit, n, name, want)
			}
		}
	}
}

func TestWhatCannotBeDrawnIsAnError(t *testing.T) {
	for name, d := range map[string]*dashboard{
		"type":       one(t, "piechart", `"unit": "s"`, `"targets": [{"expr": "a"}]`),
		"unit":       one(t, "stat", `"unit": "furlong"`, `"targets": [{"expr": "a"}]`),
		"colour":     one(t, "stat", `"unit": "s", "thresholds": {"steps": [{"color": "infrared"}]}`, `"targets": [{"expr": "a"}]`),
		"expression": one(t, "stat", `"unit": "s"`, `"targets": [{"expr": "refused"}]`),
	} {
		if err := depict(t.Context(), fake(t, some), d, nil, filepath.Join(t.TempDir(), "a.png"), 1000); err == nil || !strings.Contains(err.Error(), `"P"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	nothing := fake(t, func(string) []map[string]string { return nil })
	if err := depict(t.Context(), nothing, one(t, "stat", `"unit": "s"`, `"targets": [{"expr": "a"}]`), nil, filepath.Join(t.TempDir(), "a.png"), 1000); err != nil {
		t.Errorf("nothing found: %v", err)
	}
}
