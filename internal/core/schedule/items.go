package schedule

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fieldKind is one of the fields of an expression.
type fieldKind struct {
	name      string
	low, high int
	names     []string // of the values from low on
}

var (
	weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
	monthNames   = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	fieldKinds   = []fieldKind{
		{"second", 0, 59, nil}, {"minute", 0, 59, nil}, {"hour", 0, 23, nil},
		{"day of the month", 1, 31, nil}, {"month", 1, 12, monthNames}, {"day of the week", 0, 7, weekdayNames},
	}
)

// checkCount refuses a wrong number of fields.
func checkCount(words []string, seconds bool) error {
	switch n := len(words); {
	case n == 1 && macros["@"+strings.ToLower(words[0])] != "":
		return fmt.Errorf("%q is written @%s", words[0], strings.ToLower(words[0]))
	case isSystemdCalendar(words):
		return fmt.Errorf("is an OnCalendar of systemd, which is not read here: write 5 fields, minute, hour, day " +
			"of the month, month, day of the week")
	case n == 7:
		return fmt.Errorf("has 7 fields, as of Quartz with a year: leave the year out, set seconds, and give " +
			"end_time; days of the week are 0 to 6 from Sunday here, and 1 to 7 in Quartz")
	case seconds && n == 6, !seconds && n == 5:
		return nil
	case seconds:
		return fmt.Errorf("has %s, want 6: second, minute, hour, day of the month, month, day of the week",
			fieldCount(n))
	case n == 6:
		return fmt.Errorf("has 6 fields, want 5: minute, hour, day of the month, month, day of the week; a leading " +
			"field of seconds needs the setting seconds")
	default:
		return fmt.Errorf("has %s, want 5: minute, hour, day of the month, month, day of the week", fieldCount(n))
	}
}

// systemdDate is a date of systemd's calendar events, such as *-*-01 or 2027-01-*.
var systemdDate = regexp.MustCompile(`^(\*|\d{4})-[\d*,./]+-[\d*,./]+$|^(\*|\d\d?)-(\*|\d\d?)$`)

// isSystemdCalendar reports whether words form a calendar event of systemd: times have colons, and dates dashes.
func isSystemdCalendar(words []string) bool {
	isTime := func(word string) bool { return strings.Contains(word, ":") }
	return slices.ContainsFunc(words, isTime) || len(words) < 5 && slices.ContainsFunc(words, systemdDate.MatchString)
}

func fieldCount(n int) string {
	if n == 1 {
		return "1 field"
	}
	return fmt.Sprintf("%d fields", n)
}

// checkItems refuses items that the grammar library accepts or reads incorrectly, or refuses with an unhelpful
// error: 1,,2 as 1,2; *-5 as *; and FRI-MON/2 as Friday, Sunday and Monday, because it counts Sunday twice (0
// and 7) when a stepped range passes the end of a week.
// A step that passes the end of its range leaves the first number, as in Vixie cron. The library has no such
// steps, so the item is replaced by that number.
func checkItems(words []string) error {
	kinds := fieldKinds[len(fieldKinds)-len(words):]
	for i, word := range words {
		items := strings.Split(word, ",")
		for j, item := range items {
			text, err := kinds[i].checkItem(item)
			if err != nil {
				return err
			}
			items[j] = text
		}
		words[i] = strings.Join(items, ",")
	}
	return nil
}

func (k fieldKind) checkItem(item string) (string, error) {
	base, step, stepped := strings.Cut(item, "/")
	switch {
	case base == "":
		return "", fmt.Errorf("empty item in a list")
	case len(base) > 1 && strings.ContainsAny(base, "*?"):
		return "", fmt.Errorf("%q is neither a star nor a range", base)
	case strings.Contains(base, "~"):
		return "", fmt.Errorf("%q: a number spread over jobs is written H, or H(low-high)", item)
	case k.isDayForm(base):
		return item, k.checkDayForm(item)
	}
	low, high, err := k.parseBounds(base, stepped)
	if err != nil || !stepped {
		return item, err
	}
	n, err := strconv.Atoi(step)
	switch {
	case err != nil || n < 1:
		return "", fmt.Errorf("%q: want a step of at least 1", item)
	case k.names != nil && k.low == 0 && low > high:
		return "", fmt.Errorf("%q: a step in a range past the end of the week is ambiguous, list the days", item)
	case low <= high && n > high-low:
		return strconv.Itoa(low), nil
	}
	return item, nil
}

// isDayForm reports whether base is one of the forms of days that the library reads: L, L-n, nW, LW,
// FRI#3, FRI#L.
func (k fieldKind) isDayForm(base string) bool {
	base = strings.ToUpper(base)
	switch k.name {
	case "day of the month":
		return strings.ContainsAny(base, "LW")
	case "day of the week":
		return strings.Contains(base, "#") || strings.HasSuffix(base, "L")
	}
	return false
}

// checkDayForm refuses the form that other schedulers have for the last weekday of a month.
func (k fieldKind) checkDayForm(item string) error {
	day, last := strings.CutSuffix(strings.ToUpper(item), "L")
	if k.name != "day of the week" || !last || strings.Contains(item, "#") {
		return nil
	}
	if _, err := k.parseNumber(day); err != nil {
		return err
	}
	return fmt.Errorf("%q: the last one of a month is written %s#L", item, day)
}

// parseBounds returns the numbers from which to which base goes; those of a range that wraps around are in the
// order in which they are written. A single number with a step goes on to the end.
func (k fieldKind) parseBounds(base string, stepped bool) (low, high int, err error) {
	if base == "*" || base == "?" {
		return k.low, k.lastValue(), nil
	}
	from, to, ranged := strings.Cut(base, "-")
	low, err = k.parseNumber(from)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case ranged:
		high, err = k.parseNumber(to)
	case stepped:
		high = max(low, k.lastValue())
	default:
		high = low
	}
	return low, high, err
}

// lastValue returns the greatest number; Sunday is also 7.
func (k fieldKind) lastValue() int {
	if k.name == "day of the week" {
		return 6
	}
	return k.high
}

func (k fieldKind) parseNumber(text string) (int, error) {
	if i := slices.Index(k.names, strings.ToUpper(text)); i >= 0 {
		return k.low + i, nil
	}
	if n, err := strconv.Atoi(text); err == nil && text[0] != '+' && text[0] != '-' {
		if n < k.low || n > k.high {
			return 0, fmt.Errorf("%d is no %s, want %d to %d", n, k.name, k.low, k.high)
		}
		return n, nil
	}
	for _, name := range k.names {
		if len(text) > len(name) && strings.EqualFold(text[:len(name)], name) {
			return 0, fmt.Errorf("%q is no %s: write %s", text, k.name, name)
		}
	}
	want := fmt.Sprintf("%d to %d", k.low, k.high)
	if k.names != nil {
		want += fmt.Sprintf(", or %s to %s", k.names[0], k.names[len(k.names)-1])
	}
	return 0, fmt.Errorf("%q is no %s, want %s", text, k.name, want)
}
