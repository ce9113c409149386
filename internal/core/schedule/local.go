package schedule

import (
	"fmt"
	"time"
)

// AtLocal returns the instant at which clocks in the zone show a local time, which is given in UTC, and a
// remark for people where a change of the clock matters. It follows the rule of a fixed cron time: a time
// that a gap leaves out is the first instant after the gap, and of a time that comes twice
// the first pass counts.
func AtLocal(local time.Time, zone *time.Location) (at time.Time, remark string) {
	civil := local.Unix()
	seg := offsetSegmentAt(zone, civil-maxUTCOffset)
	for seg.end != unbounded && civil >= seg.end+seg.offset {
		seg = offsetSegmentAt(zone, seg.end)
	}
	rest := time.Duration(local.Nanosecond())
	if seg.start != -unbounded && civil < seg.start+seg.offset {
		at = time.Unix(seg.start, 0).In(zone)
		return at, fmt.Sprintf("%s does not exist on this day: taken as %s", formatTimeOfDay(civil),
			at.Format("15:04 -07:00"))
	}
	at = time.Unix(civil-seg.offset, 0).Add(rest).In(zone)
	if seg.end != unbounded && seg.after < seg.offset && civil >= seg.end+seg.after {
		remark = fmt.Sprintf("%s comes twice on this day: taken as the first pass, %s", formatTimeOfDay(civil),
			at.Format("15:04 -07:00"))
	}
	return at, remark
}
