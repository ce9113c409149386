package schedule

import (
	"fmt"
	"time"
)

// DescribeShift describes, for people, how a clock change shifted a nominal time; "" if none did.
func (s *Schedule) DescribeShift(nominal time.Time) string {
	ms := floorMillis(nominal)
	if ms%1000 != 0 {
		return ""
	}
	for i := range s.rules {
		if text := s.rules[i].describeShift(ms / 1000); text != "" {
			return text
		}
	}
	return ""
}

func (r *rule) describeShift(t int64) string {
	if at, ok := r.nextInstant(t); !ok || at != t {
		return ""
	}
	seg := r.segmentAt(t)
	civil := t + seg.offset
	if lost, owed := r.firstSwallowed(seg); owed && t == seg.start {
		return fmt.Sprintf("%s does not exist on this day: runs at %s", formatTimeOfDay(lost), formatTimeOfDay(civil))
	}
	switch {
	case seg.end != unbounded && seg.after < seg.offset && civil >= seg.end+seg.after:
		return "first pass of " + formatTimeOfDay(civil) + ", which comes twice"
	case seg.start != -unbounded && seg.before > seg.offset && civil < seg.start+seg.before:
		return "second pass of " + formatTimeOfDay(civil) + ", which comes twice"
	}
	return ""
}

// formatTimeOfDay shows a civil time of day.
func formatTimeOfDay(civil int64) string {
	layout := "15:04"
	if civil%60 != 0 {
		layout = time.TimeOnly
	}
	return time.Unix(civil, 0).UTC().Format(layout)
}
