package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/fermata-io/fermata/tools/release/tree"
)

// chartDir is where the Helm chart lies in the tree.
const chartDir = "deploy/helm/fermata"

// chart packs the Helm chart as helm package does. The chart has the version of the release. By default it runs the
// release's image, by its digest.
func (s settings) chart(digest string) (name string, archive []byte, err error) {
	var entries []tree.Entry
	dir := filepath.Join(s.root, chartDir)
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, file)
		if err == nil && below == "Chart.yaml" {
			data, err = s.stamped(data, digest)
		}
		entries = append(entries, tree.Entry{Path: path.Join("fermata", filepath.ToSlash(below)), Mode: 0o644, Data: data})
		return err
	})
	if err != nil {
		return "", nil, fmt.Errorf("chart: %w", err)
	}
	var out bytes.Buffer
	err = tree.WriteGzip(&out, entries, s.at)
	return "fermata-" + s.chartVersion() + ".tgz", out.Bytes(), err
}

// stamped is Chart.yaml with the versions of the release, and the digest of its image.
func (s settings) stamped(text []byte, digest string) ([]byte, error) {
	stamps := map[string]string{
		"version": s.chartVersion(), "appVersion": s.version, "  fermata.io/image-digest": digest,
	}
	for key, version := range stamps {
		line := regexp.MustCompile(`(?m)^` + key + `: .*$`)
		if n := len(line.FindAll(text, -1)); n != 1 {
			return nil, fmt.Errorf("there are %d lines in Chart.yaml that begin with %s", n, key)
		}
		text = line.ReplaceAllLiteral(text, []byte(key+`: "`+version+`"`))
	}
	return text, nil
}

// chartVersion is the version of the release in the form that Helm requires, also for a checkout without a tag.
func (s settings) chartVersion() string {
	if v := semver.Canonical(s.version); v != "" {
		return strings.TrimPrefix(v, "v")
	}
	return "0.0.0-at-" + s.version
}
