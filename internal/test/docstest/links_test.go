package docstest_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLinksLeadSomewhere: the relative links of the documents name files, and headings of them, that exist.
func TestLinksLeadSomewhere(t *testing.T) {
	documents := documentsOf(t)
	if len(documents) < 50 {
		t.Fatalf("%d documents: are they still found?", len(documents))
	}
	for _, file := range documents {
		for _, link := range brokenLinks(t, file) {
			t.Errorf("%s: %s", strings.TrimPrefix(file, root+"/"), link)
		}
	}
}

func TestAnchorsOfHeadings(t *testing.T) {
	text := "# One `flag`, two\n\n```\n# a comment\n```\n## [Link](x.md): it's *here*\n## Same\n## Same\n## a_b-c\n"
	want := []string{"one-flag-two", "link-its-here", "same", "same-1", "a_b-c"}
	if got := anchorsOf(text); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// documentsOf returns the Markdown files that people read: those of the root, of docs, and beside code.
func documentsOf(t *testing.T) []string {
	var found []string
	for _, dir := range []string{"docs", "deploy", "examples", "bench", "sdk"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			if filepath.Ext(path) == ".md" {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	top, err := filepath.Glob(root + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(found, top...)
}

var (
	codeBlock   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	linkTarget  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	scheme      = regexp.MustCompile(`^[a-z]+:`)
	heading     = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// brokenLinks returns the relative links of a document whose file or heading does not exist.
func brokenLinks(t *testing.T, file string) []string {
	var broken []string
	for _, match := range linkTarget.FindAllStringSubmatch(codeBlock.ReplaceAllString(readFile(t, file), ""), -1) {
		if scheme.MatchString(match[1]) {
			continue
		}
		path, anchor, _ := strings.Cut(match[1], "#")
		target := file
		if path != "" {
			target = filepath.Join(filepath.Dir(file), path)
		}
		if _, err := os.Stat(target); err != nil {
			broken = append(broken, fmt.Sprintf("%s does not exist", match[1]))
			continue
		}
		if anchor != "" && filepath.Ext(target) == ".md" && !slices.Contains(anchorsOf(readFile(t, target)), anchor) {
			broken = append(broken, fmt.Sprintf("%s has no such heading", match[1]))
		}
	}
	return broken
}

// anchorsOf returns the anchors that GitHub gives to the headings of a text.
func anchorsOf(text string) []string {
	var anchors []string
	uses := map[string]int{}
	for _, match := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		plain := linkText.ReplaceAllString(match[1], "$1")
		anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(plain)), ""), " ", "-")
		if n := uses[anchor]; n > 0 {
			anchors = append(anchors, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			anchors = append(anchors, anchor)
		}
		uses[anchor]++
	}
	return anchors
}
