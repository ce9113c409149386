package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// checkItems refuses what the grammar library reads leniently or wrongly:
// 1,,2 as 1,2; *-5 as *; and FRI-MON/2 as Friday, Sunday and Monday, since it
// counts Sunday twice (0 and 7) when a stepped range passes the end of a week.
func checkItems(words []string) error {
	for i, word := range words {
		for item := range strings.SplitSeq(word, ",") {
			if err := checkItem(item); err != nil {
				return err
			}
			if i == len(words)-1 && wrapsStepped(item) {
				return fmt.Errorf("%q: a step in a range past the end of the week is ambiguous, list the days", item)
			}
		}
	}
	return nil
}

func checkItem(item string) error {
	base, _, _ := strings.Cut(item, "/")
	switch {
	case base == "":
		return fmt.Errorf("empty item in a list")
	case len(base) > 1 && strings.ContainsAny(base, "*?"):
		return fmt.Errorf("%q is neither a star nor a range", base)
	case strings.Contains(base, "~"):
		return fmt.Errorf("%q: a number spread over jobs is written H, or H(low-high)", item)
	}
	return nil
}

// wrapsStepped reports whether item is a range of weekdays with a step whose
// begin is after its end.
func wrapsStepped(item string) bool {
	span, _, stepped := strings.Cut(item, "/")
	from, to, ranged := strings.Cut(span, "-")
	if !stepped || !ranged {
		return false
	}
	return weekday(from) > weekday(to)
}

// weekday returns 0 to 7, or any number for what the grammar will refuse.
func weekday(s string) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return strings.Index("sunmontuewedthufrisat", strings.ToLower(s)) / 3
}
