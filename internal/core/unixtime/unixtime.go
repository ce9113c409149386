// Package unixtime has types for Unix times, so that milliseconds, microseconds and numbers of other things cannot be
// confused.
//
// Times are stored and sent as plain integers: conversions to and from int64 are for the edges, such as encodings and
// messages. A difference is a [time.Duration] ([Milli.Sub]), or an int64 where milliseconds are what is wanted.
package unixtime

import "time"

// Milli is a Unix time in milliseconds. What 0 means is up to the field; mostly it is unset.
type Milli int64

// MilliOf returns a time in milliseconds. Parts of a millisecond are dropped, towards the past.
func MilliOf(t time.Time) Milli { return Milli(t.UnixMilli()) }

// Time returns the same instant as a time.
func (m Milli) Time() time.Time { return time.UnixMilli(int64(m)) }

// Add returns the time a duration later. Parts of a millisecond in the duration are dropped.
func (m Milli) Add(d time.Duration) Milli { return m + Milli(d.Milliseconds()) }

// Sub returns the time that has passed since an earlier instant. It wraps around beyond 292 years.
func (m Milli) Sub(earlier Milli) time.Duration { return time.Duration(m-earlier) * time.Millisecond }

// Micro returns the same instant in microseconds.
func (m Milli) Micro() Micro { return Micro(m) * 1000 }

// Micro is a Unix time in microseconds.
type Micro int64

// MicroOf returns a time in microseconds. Parts of a microsecond are dropped, towards the past.
func MicroOf(t time.Time) Micro { return Micro(t.UnixMicro()) }

// Time returns the same instant as a time.
func (m Micro) Time() time.Time { return time.UnixMicro(int64(m)) }

// Add returns the time a duration later. Parts of a microsecond in the duration are dropped.
func (m Micro) Add(d time.Duration) Micro { return m + Micro(d.Microseconds()) }

// Sub returns the time that has passed since an earlier instant. It wraps around beyond 292 years.
func (m Micro) Sub(earlier Micro) time.Duration { return time.Duration(m-earlier) * time.Microsecond }

// Milli returns the same instant in milliseconds. Parts of a millisecond are dropped, towards 1970.
func (m Micro) Milli() Milli { return Milli(m / 1000) }
