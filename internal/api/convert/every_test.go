package convert

import (
	"testing"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestEveryIsStoredWithoutDays: nodes of earlier versions parse what is stored.
func TestEveryIsStoredWithoutDays(t *testing.T) {
	r := Reader{}
	spec := r.Schedule("schedule", &fermatav1.Schedule{Rule: &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{Expressions: []string{"@every 7d"}}}})
	if len(spec.Cron) != 1 || spec.Cron[0] != "@every 168h0m0s" {
		t.Errorf("%q", spec.Cron)
	}
}
