package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options are what the command line says.
type options struct {
	prometheus, dashboards, out string
	width                       int
	span, step, window          time.Duration
	end                         string
}

func main() {
	var o options
	flag.StringVar(&o.prometheus, "prometheus", "http://127.0.0.1:9090", "base `URL` of the Prometheus to ask")
	flag.StringVar(&o.dashboards, "dashboards", "deploy/grafana", "`directory` of the dashboards' JSON")
	flag.StringVar(&o.out, "out", "docs/images", "`directory` that the pictures are written into, one for each dashboard")
	flag.IntVar(&o.width, "width", 1360, "width of a picture in `pixels`")
	flag.DurationVar(&o.span, "range", 3*time.Minute, "how far back the pictures look")
	flag.DurationVar(&o.step, "step", time.Second, "distance of the points of a line")
	flag.DurationVar(&o.window, "rate", 15*time.Second, "what rates are taken over: $__rate_interval")
	flag.StringVar(&o.end, "end", "", "where the pictures end, as RFC 3339 `time`; now if empty")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "screens: takes flags only, see -help")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "screens:", err)
		os.Exit(1)
	}
}

// run draws every dashboard of the directory.
func run(ctx context.Context, o options) error {
	end := time.Now()
	if o.end != "" {
		var err error
		if end, err = time.Parse(time.RFC3339, o.end); err != nil {
			return fmt.Errorf("-end: %w", err)
		}
	}
	if o.width < 800 || o.span <= 0 || o.step <= 0 || o.window <= 0 {
		return errors.New("-width must be 800 or more, -range, -step and -rate above zero")
	}
	paths, err := filepath.Glob(filepath.Join(o.dashboards, "*.json"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("no dashboards in %s (%v)", o.dashboards, err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	a := newAsker(o.prometheus, end.Truncate(o.step), o.span, o.step, o.window)
	all := make([]*dashboard, len(paths))
	for i, path := range paths {
		if all[i], err = readDashboard(path); err != nil {
			return err
		}
	}
	for i, path := range paths {
		d := all[i]
		if err := depict(ctx, a, d, linkedFrom(d, all), filepath.Join(o.out, strings.TrimSuffix(filepath.Base(path), ".json")+".png"), o.width); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// linkedFrom are the titles of the dashboards that have the tag which a dashboard links to,
// without the part that all titles share.
func linkedFrom(d *dashboard, all []*dashboard) (titles []string) {
	for _, o := range all {
		if len(d.Links) > 0 && o != d && slices.ContainsFunc(d.Links[0].Tags, func(tag string) bool { return slices.Contains(o.Tags, tag) }) {
			titles = append(titles, strings.TrimPrefix(o.Title, "Fermata / "))
		}
	}
	return titles
}

// depict asks what one dashboard asks, and writes its picture.
func depict(ctx context.Context, a *asker, d *dashboard, others []string, path string, width int) error {
	answers := make([]*answer, len(d.Panels))
	for i := range d.Panels {
		var err error
		if answers[i], err = a.panel(ctx, &d.Panels[i]); err != nil {
			return fmt.Errorf("panel %q: %w", d.Panels[i].Title, err)
		}
		if d.Panels[i].Type != "row" && answers[i].empty() {
			fmt.Printf("%s: %q has no data\n", filepath.Base(path), d.Panels[i].Title)
		}
	}
	events, err := a.annotations(ctx, d)
	if err != nil {
		return err
	}
	page, err := drawPage(a, d, others, answers, events, width)
	if err != nil {
		return err
	}
	size, err := writePNG(path, page)
	if err == nil {
		fmt.Printf("%s: %d x %d, %d KB\n", path, page.Bounds().Dx(), page.Bounds().Dy(), size/1000)
	}
	return err
}
