package docstest_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// tests are the names of test functions by directory, relative to the root.
type tests map[string][]string

func (ts tests) existsAnywhere(name string) bool {
	for _, names := range ts {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// missingUnder lists the names that no directory with these last elements has.
func (ts tests) missingUnder(element string, names []string) (faults []string) {
	var here []string
	for dir, known := range ts {
		if dir == element || strings.HasSuffix(dir, "/"+element) {
			here = append(here, known...)
		}
	}
	for _, n := range names {
		if !slices.Contains(here, n) {
			faults = append(faults, fmt.Sprintf("%s: has no %s", element, n))
		}
	}
	return faults
}

var (
	// placed is a directory with the tests of it.
	placed = regexp.MustCompile("`([a-z][\\w/.-]*)`: ((?:(?:Test|Fuzz)[A-Z]\\w*(?:, )?)+)")
	// short is the last element of a directory with the tests of it: (lease: TestOne, TestTwo).
	short = regexp.MustCompile(`(?:^|[\s(;])([a-z][\w/]*):\s+((?:(?:Test|Fuzz)[A-Z]\w*(?:,\s+)?)+)`)
	// pattern is the -run pattern of a command, which is no name.
	pattern = regexp.MustCompile(`-run \S+`)
	name    = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
)

// brokenClaims lists what a document claims and what is not so.
func brokenClaims(text string, have tests) []string {
	var faults []string
	for _, claim := range placed.FindAllStringSubmatch(text, -1) {
		dir, known := claim[1], have[claim[1]]
		if known == nil {
			faults = append(faults, fmt.Sprintf("%s has no tests", dir))
			continue
		}
		for _, n := range name.FindAllString(claim[2], -1) {
			if !slices.Contains(known, n) {
				faults = append(faults, fmt.Sprintf("%s has no %s", dir, n))
			}
		}
	}
	for _, claim := range short.FindAllStringSubmatch(text, -1) {
		faults = append(faults, have.missingUnder(claim[1], name.FindAllString(claim[2], -1))...)
	}
	for _, n := range name.FindAllString(pattern.ReplaceAllString(placed.ReplaceAllString(text, ""), ""), -1) {
		if !have.existsAnywhere(n) {
			faults = append(faults, fmt.Sprintf("no package has %s", n))
		}
	}
	return faults
}

// gating matches a number of lives that a document states for make test.
var gating = regexp.MustCompile("(?:([\\d,]+)(?: of them)? are|N=(\\d+) +# what is) part of `make test`")

// livesTold are the numbers of lives, without commas.
func livesTold(text string) (told []string) {
	for _, m := range gating.FindAllStringSubmatch(text, -1) {
		told = append(told, strings.ReplaceAll(m[1]+m[2], ",", ""))
	}
	return told
}

// unprovenRows lists the rows of the table under a heading that name no test.
func unprovenRows(text, heading string) (rows int, faults []string) {
	_, section, found := strings.Cut(text, "\n"+heading+"\n")
	if !found {
		return 0, []string{"there is no section " + heading}
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| topic") {
			continue
		}
		rows++
		if !placed.MatchString(cells[len(cells)-1]) {
			faults = append(faults, "no test for"+cells[0])
		}
	}
	return rows, faults
}
