package client

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Every returns a schedule with a fixed rate: a late run does not move the next one.
func Every(d time.Duration) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(d)}}}
}

// FixedDelay returns a schedule whose next run is due d after the end of the previous one.
func FixedDelay(d time.Duration) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Interval{
		Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(d), FixedDelay: true},
	}}
}

// Cron returns a schedule of a cron expression with five fields, or @daily and the like, in an IANA time zone.
// An empty zone is UTC.
func Cron(expression, zone string) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Cron{
		Cron: &fermatav1.CronSchedule{Expressions: []string{expression}, TimeZone: zone},
	}}
}

// EveryWeek returns a schedule at local times, such as "09:00", on days, such as "MON", of every n-th week, in
// an IANA time zone. An empty zone is UTC. The first week is that in which the job is created, or that of the
// field From. Responses have that day in From.
func EveryWeek(n int, days []string, times []string, zone string) *Schedule {
	return calendarSchedule(&fermatav1.CalendarSchedule{
		Every: int32(n), Unit: fermatav1.CalendarSchedule_UNIT_WEEK, Weekdays: days, Times: times, TimeZone: zone,
	})
}

// EveryDay returns a schedule at local times on every n-th day; see [EveryWeek].
func EveryDay(n int, times []string, zone string) *Schedule {
	return calendarSchedule(&fermatav1.CalendarSchedule{
		Every: int32(n), Unit: fermatav1.CalendarSchedule_UNIT_DAY, Times: times, TimeZone: zone,
	})
}

// EveryMonth returns a schedule at local times on days of every n-th month: 1 to 31, or -1 (the last day) to
// -31. In a shorter month a missing day is replaced by the last one.
func EveryMonth(n int, days []int32, times []string, zone string) *Schedule {
	return calendarSchedule(&fermatav1.CalendarSchedule{
		Every: int32(n), Unit: fermatav1.CalendarSchedule_UNIT_MONTH, MonthDays: days, Times: times, TimeZone: zone,
	})
}

func calendarSchedule(c *fermatav1.CalendarSchedule) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Calendar{Calendar: c}}
}

// Once returns a schedule with a single run at t, or at once if t has passed.
func Once(t time.Time) *Schedule {
	return &Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(t)}}
}

// HTTPRequest is the payload of the built-in handler "http".
type HTTPRequest struct {
	// Method is the HTTP method. Default GET, or POST with a body.
	Method  string            `json:"method,omitempty"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	// BodyBase64 is a binary body, used instead of Body.
	BodyBase64 string `json:"body_base64,omitempty"`
	// ExpectedStatus lists status codes and ranges that count as success. Default "200-299".
	ExpectedStatus []string `json:"expected_status,omitempty"`
	// FollowRedirects is "keep_method", "as_get", which also follows redirects that turn the request into a GET
	// without a body, or "none". Default "keep_method".
	FollowRedirects string `json:"follow_redirects,omitempty"`
	// Timeout is the timeout of the request, such as "5s". Default: that of the attempt.
	Timeout string `json:"timeout,omitempty"`
	// MaxBodyBytes is the maximum number of bytes of the response that are counted and kept. Default: the worker's
	// maximum.
	MaxBodyBytes *int `json:"max_body_bytes,omitempty"`
}

// Payload returns the value for [Job].Payload.
func (q HTTPRequest) Payload() []byte {
	if q.Method == "" && (q.Body != "" || q.BodyBase64 != "") {
		q.Method = "POST"
	}
	return encodePayload(q)
}

// Command is the payload of the built-in handler "exec".
type Command struct {
	Argv  []string          `json:"argv"`
	Env   map[string]string `json:"env,omitempty"`
	Dir   string            `json:"dir,omitempty"`
	Stdin string            `json:"stdin,omitempty"`
}

// Payload returns the value for [Job].Payload.
func (c Command) Payload() []byte { return encodePayload(c) }

func encodePayload(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // never: structs of strings
	}
	return text
}
