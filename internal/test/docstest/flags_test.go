package docstest_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// flagsOfOthers are the flags of other programs that documents show.
var flagsOfOthers = strings.Fields(`
	--help --version
	--access --bundle --check --insecure-ignore-tlog --key --no-git-tag-version --outdir --predicate --tag --type
	--appendonly --daemonize --port --tls-auth-clients --tls-ca-cert-file --tls-cert-file --tls-key-file --tls-port
	--atomic --cleanup-on-fail --from-file --from-literal --logs --previous --raw --set --set-string --validate
	--enable-feature --max-time --no-build-isolation --no-isolation --pid --proto --python --report
	--system-site-packages`)

// TestDocumentedFlagsExist: the flags that documents show are in docs/reference. The list of changes also names flags
// of earlier builds.
func TestDocumentedFlagsExist(t *testing.T) {
	known := flagsOfOthers
	for _, page := range referencePages(t) {
		known = append(known, flagsOf(page)...)
	}
	if len(known) < 200 {
		t.Fatalf("%d flags: are they still found?", len(known))
	}
	for _, file := range documentsOf(t) {
		if strings.HasSuffix(file, "/CHANGELOG.md") {
			continue
		}
		for _, flag := range unknownFlags(readFile(t, file), known) {
			t.Errorf("%s: there is no flag %s", strings.TrimPrefix(file, root+"/"), flag)
		}
	}
}

// TestDocumentedDefaultsAreCurrent: a duration that stands beside a flag as its default is that of docs/reference.
func TestDocumentedDefaultsAreCurrent(t *testing.T) {
	defaults := map[string][]string{}
	for _, page := range referencePages(t) {
		addDefaults(defaults, page)
	}
	stated := 0
	for _, file := range documentsOf(t) {
		if strings.HasSuffix(file, "/CHANGELOG.md") {
			continue
		}
		count, faults := wrongDefaults(readFile(t, file), defaults)
		stated += count
		for _, fault := range faults {
			t.Errorf("%s: %s", strings.TrimPrefix(file, root+"/"), fault)
		}
	}
	if stated < 5 {
		t.Errorf("%d defaults: are they still found?", stated)
	}
}

func TestFaultsOfFlagsAreFound(t *testing.T) {
	page := "| `--lock-ttl` | `FERMATA_LOCK_TTL` | duration | `10s` | life |\n" +
		"| `--wait` | `FERMATA_WAIT` | duration | `1m0s` | wait |\n" +
		"| `-A`, `--all` | bool | `false` | all; see --lost |\n"
	if flags := flagsOf(page); !slices.Equal(flags, []string{"--lock-ttl", "--wait", "--all"}) {
		t.Errorf("flags %q", flags)
	}
	for text, want := range map[string][]string{
		"`--lock-ttl 2s`, --wait, `--all`, `--tls-...` and a--b": nil,
		"`--lock-tll`, then\n--waits":                            {"--lock-tll", "--waits"},
	} {
		if got := unknownFlags(text, flagsOf(page)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	defaults := map[string][]string{}
	addDefaults(defaults, page)
	for text, faults := range map[string]int{
		"`--lock-ttl` (10 s), (60 s, `--wait`), `--wait` (a minute)": 0,
		"`--lock-ttl` (9 s), (1 h, `--wait`)":                        2,
	} {
		if count, got := wrongDefaults(text, defaults); len(got) != faults || count < 2 {
			t.Errorf("%q: %q among %d, want %d", text, got, count, faults)
		}
	}
}

func referencePages(t *testing.T) (pages []string) {
	files, err := filepath.Glob(root + "/docs/reference/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		pages = append(pages, readFile(t, file))
	}
	return pages
}

var (
	flagRow = regexp.MustCompile("(?m)^\\| (?:`-\\w`, )?`(--[a-z0-9-]+)` ")
	// settingRow has flag and default of a duration that can also be set by a variable.
	settingRow = regexp.MustCompile("(?m)^\\| `(--[a-z0-9-]+)` \\| `FERMATA_[^|]*\\| duration \\| `([^`]+)` ")
	// shownFlag is a flag, but for the beginning of the names of several, as in --tls-... .
	shownFlag     = regexp.MustCompile(`(?:^|[^\w-])(--[a-z][a-z0-9-]*[a-z0-9])(-?\.\.\.|-?\*)?`)
	statedDefault = regexp.MustCompile("`(--[a-z0-9-]+)` \\(([\\d.]+) (ms|s|min|h)\\)|" +
		"\\(([\\d.]+) (ms|s|min|h), `(--[a-z0-9-]+)`")
)

// flagsOf returns the flags of a page of the reference.
func flagsOf(page string) (flags []string) {
	for _, match := range flagRow.FindAllStringSubmatch(page, -1) {
		flags = append(flags, match[1])
	}
	return flags
}

// unknownFlags returns the flags of a text that are not known, in their order.
func unknownFlags(text string, known []string) (unknown []string) {
	for _, match := range shownFlag.FindAllStringSubmatch(text, -1) {
		if match[2] == "" && !slices.Contains(known, match[1]) {
			unknown = append(unknown, match[1])
		}
	}
	return unknown
}

// addDefaults adds the defaults of a page of the reference. Several commands may have a flag of the same name.
func addDefaults(defaults map[string][]string, page string) {
	for _, match := range settingRow.FindAllStringSubmatch(page, -1) {
		defaults[match[1]] = append(defaults[match[1]], match[2])
	}
}

// wrongDefaults returns how many defaults a text states in numbers, and which of them no command has.
func wrongDefaults(text string, defaults map[string][]string) (count int, faults []string) {
	for _, match := range statedDefault.FindAllStringSubmatch(text, -1) {
		flag, stated := match[1]+match[6], match[2]+match[4]+strings.TrimSuffix(match[3]+match[5], "in")
		count++
		value, err := time.ParseDuration(stated)
		isDefault := err == nil && slices.ContainsFunc(defaults[flag], func(text string) bool {
			have, err := time.ParseDuration(text)
			return err == nil && have == value
		})
		if !isDefault {
			faults = append(faults, fmt.Sprintf("%s has the defaults %q, not %s", flag, defaults[flag], stated))
		}
	}
	return count, faults
}
