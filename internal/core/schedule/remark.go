package schedule

import (
	"fmt"
	"time"
)

// Remark says, for people, what a change of the clock did to a nominal time; ""
// as a rule.
func (s *Schedule) Remark(nominal time.Time) string {
	ms := millis(nominal)
	if ms%1000 != 0 {
		return ""
	}
	for i := range s.rules {
		if text := s.rules[i].remark(ms / 1000); text != "" {
			return text
		}
	}
	return ""
}

func (r *rule) remark(t int64) string {
	if at, ok := r.next(t); !ok || at != t {
		return ""
	}
	seg := r.segment(t)
	civil := t + seg.offset
	if lost, owed := r.swallowed(seg); owed && t == seg.start {
		return fmt.Sprintf("%s does not exist on this day: runs at %s", wallClock(lost), wallClock(civil))
	}
	switch {
	case seg.end != unbounded && seg.after < seg.offset && civil >= seg.end+seg.after:
		return "first pass of " + wallClock(civil) + ", which comes twice"
	case seg.start != -unbounded && seg.before > seg.offset && civil < seg.start+seg.before:
		return "second pass of " + wallClock(civil) + ", which comes twice"
	}
	return ""
}

// wallClock shows a civil time of day.
func wallClock(civil int64) string {
	layout := "15:04"
	if civil%60 != 0 {
		layout = time.TimeOnly
	}
	return time.Unix(civil, 0).UTC().Format(layout)
}
