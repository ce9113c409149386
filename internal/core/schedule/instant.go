package schedule

import "time"

// Instants inside the package are milliseconds (schedules) or seconds (cron)
// since the Unix epoch, restricted to years 1 to 9999. Within these bounds no
// sum below can overflow an int64.
const (
	minInstant int64 = -62_135_596_800_000 // 0001-01-01T00:00:00.000Z
	maxInstant int64 = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
)

var (
	minTime = time.UnixMilli(minInstant)
	maxTime = time.UnixMilli(maxInstant)
)

// RoundUp returns the first whole millisecond that is not before t. Times at which something
// may begin are rounded so: nothing begins before the time that was given.
func RoundUp(t time.Time) time.Time {
	if down := RoundDown(t); down.Before(t) {
		return down.Add(time.Millisecond)
	}
	return t
}

// RoundDown returns the last whole millisecond that is not after t. Times at which something
// ends are rounded so.
func RoundDown(t time.Time) time.Time {
	return t.Add(-time.Duration(t.Nanosecond()) % time.Millisecond)
}

// ceilMillis rounds t up to a millisecond.
func ceilMillis(t time.Time) int64 { return floorMillis(RoundUp(t)) }

// floorMillis rounds t down to a millisecond. A time outside the supported years becomes the nearest instant
// outside.
func floorMillis(t time.Time) int64 {
	switch {
	case t.Before(minTime):
		return minInstant - 1
	case t.After(maxTime):
		return maxInstant + 1
	}
	return t.UnixMilli()
}

func timeFromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// floorMod returns what floorDiv leaves, 0 to b-1.
func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
