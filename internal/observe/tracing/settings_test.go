package tracing

import (
	"strings"
	"testing"
)

func TestSettings(t *testing.T) {
	const collector = "http://c:4317"
	for _, c := range []struct {
		what, endpoint, share string
		env                   map[string]string
		want                  Settings
		fault                 string
	}{
		{what: "nothing"},
		{what: "a share alone", share: "0.5"},
		{what: "flags", endpoint: collector, share: "0.25", want: Settings{collector, 0.25}},
		{what: "an endpoint", endpoint: "https://c:1", want: Settings{"https://c:1", 1}},
		{what: "the environment", env: map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
			"OTEL_TRACES_SAMPLER_ARG": "0.1",
		}, want: Settings{collector, 0.1}},
		{what: "its narrower variable", env: map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector,
			"OTEL_TRACES_SAMPLER": "always_off",
		}, want: Settings{collector, 0}},
		{what: "flags beside it", endpoint: collector, share: "1", env: map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:1", "OTEL_TRACES_SAMPLER": "always_off",
			"OTEL_TRACES_EXPORTER": "none",
		}, want: Settings{collector, 1}},
		{what: "an argument that is none", env: map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_TRACES_SAMPLER": "traceidratio",
			"OTEL_TRACES_SAMPLER_ARG": "lots",
		}, want: Settings{collector, 1}},
		{what: "another protocol", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector,
			"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}},
		{what: "another exporter", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector,
			"OTEL_TRACES_EXPORTER": "zipkin"}},
		{what: "all turned off", endpoint: collector, env: map[string]string{"OTEL_SDK_DISABLED": "true"}},
		{what: "no scheme", endpoint: "c:4317", fault: "--trace-endpoint"},
		{what: "another scheme", endpoint: "grpc://c:4317", fault: "--trace-endpoint"},
		{what: "a share beyond all", endpoint: collector, share: "1.1", fault: "--trace-sample"},
		{what: "a share that is none", share: "NaN", fault: "--trace-sample"},
	} {
		have, err := CompleteSettings(c.endpoint, c.share, func(name string) string { return c.env[name] })
		switch {
		case c.fault != "":
			if err == nil || !strings.HasPrefix(err.Error(), c.fault) {
				t.Errorf("%s: %v, want a fault of %s", c.what, err, c.fault)
			}
		case err != nil || have != c.want:
			t.Errorf("%s: %+v (%v), want %+v", c.what, have, err, c.want)
		}
	}
}
