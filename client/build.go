package client

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Every is due at a fixed rate: a late run does not move the next one.
func Every(d time.Duration) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(d)}}}
}

// FixedDelay is due so long after the end of the previous run.
func FixedDelay(d time.Duration) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Interval{
		Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(d), FixedDelay: true},
	}}
}

// Cron is due by an expression of five fields (or @daily and the like), read in
// an IANA time zone; an empty one is UTC.
func Cron(expression, zone string) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Cron{
		Cron: &fermatav1.CronSchedule{Expressions: []string{expression}, TimeZone: zone},
	}}
}

// EveryWeek is due at local times on days of each n-th week, such as "MON", of an IANA time zone; an empty
// one is UTC. The first week is that in which the job is created, or that of the field From; answers have the day in From.
func EveryWeek(n int, days []string, times []string, zone string) *Schedule {
	return calendarSchedule(&fermatav1.CalendarSchedule{
		Every: int32(n), Unit: fermatav1.CalendarSchedule_UNIT_WEEK, Weekdays: days, Times: times, TimeZone: zone,
	})
}

// EveryDay is due at local times on each n-th day.
func EveryDay(n int, times []string, zone string) *Schedule {
	return calendarSchedule(&fermatav1.CalendarSchedule{
		Every: int32(n), Unit: fermatav1.CalendarSchedule_UNIT_DAY, Times: times, TimeZone: zone,
	})
}

// EveryMonth is due at local times on days of each n-th month: 1 to 31, or -1 (the last one) to -31. In a month
// that does not have the day it is due on the last one.
func EveryMonth(n int, days []int32, times []string, zone string) *Schedule {
	return calendarSchedule(&fermatav1.CalendarSchedule{
		Every: int32(n), Unit: fermatav1.CalendarSchedule_UNIT_MONTH, MonthDays: days, Times: times, TimeZone: zone,
	})
}

func calendarSchedule(c *fermatav1.CalendarSchedule) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Calendar{Calendar: c}}
}

// Once is due at one instant; at once if it has passed.
func Once(t time.Time) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(t)}}
}

// HTTPRequest is the payload of the ready-made handler "http".
type HTTPRequest struct {
	// Method defaults to GET, or POST with a body.
	Method  string            `json:"method,omitempty"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	// BodyBase64 is a body that is not text, in place of Body.
	BodyBase64 string `json:"body_base64,omitempty"`
	// ExpectedStatus lists codes and ranges such as "200-299", the default.
	ExpectedStatus []string `json:"expected_status,omitempty"`
	// FollowRedirects is "keep_method", the default, "as_get" for those also that make a GET without
	// a body of the request, or "none".
	FollowRedirects string `json:"follow_redirects,omitempty"`
	// Timeout of the request, as "5s". Default: that of the attempt.
	Timeout string `json:"timeout,omitempty"`
	// MaxBodyBytes bounds how much of the answer is read. Default: the
	// worker's own bound.
	MaxBodyBytes *int `json:"max_body_bytes,omitempty"`
}

// Payload returns what to put into [Job].Payload.
func (q HTTPRequest) Payload() []byte {
	if q.Method == "" && (q.Body != "" || q.BodyBase64 != "") {
		q.Method = "POST"
	}
	return encodePayload(q)
}

// Command is the payload of the ready-made handler "exec".
type Command struct {
	Argv  []string          `json:"argv"`
	Env   map[string]string `json:"env,omitempty"`
	Dir   string            `json:"dir,omitempty"`
	Stdin string            `json:"stdin,omitempty"`
}

// Payload returns what to put into [Job].Payload.
func (c Command) Payload() []byte { return encodePayload(c) }

func encodePayload(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings
	}
	return text
}
