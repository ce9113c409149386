package tracing

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// Settings are the endpoint of traces and the share of sampled runs.
type Settings struct {
	// Endpoint is the collector's: http://host:4317, or https://host:4317 for TLS. Empty: no tracing.
	Endpoint string
	// Share is the sampled share of the runs that no sampled call requested, 0 to 1.
	Share float64
}

// DefaultShare traces every run.
const DefaultShare = 1.0

// CompleteSettings completes what flags say, endpoint and share ("" where not given), by the
// standard variables of the environment:
//
//   - OTEL_SDK_DISABLED=true and OTEL_TRACES_EXPORTER=none turn tracing off, the
//     latter unless a flag turns it on;
//   - OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, then OTEL_EXPORTER_OTLP_ENDPOINT, stand in
//     for an endpoint, if the protocol that goes with them is grpc;
//   - OTEL_TRACES_SAMPLER_ARG stands in for the share, if OTEL_TRACES_SAMPLER is one of
//     the traceidratio samplers; always_off is a share of 0.
//
// Those about headers, certificates, timeouts, compression, the queue of spans, and
// the resource are the library's to read.
func CompleteSettings(endpoint, share string, getenv func(string) string) (Settings, error) {
	s := Settings{Endpoint: endpoint, Share: DefaultShare}
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return Settings{}, nil
	}
	if endpoint == "" {
		s.Endpoint = endpointFromEnv(getenv)
	}
	if s.Endpoint == "" {
		if share == "" {
			return Settings{}, nil
		}
		// An invalid share is an error, though it has no effect here.
		_, err := parseShare(share)
		return Settings{}, err
	}
	if u, err := url.Parse(s.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Settings{}, fmt.Errorf("--trace-endpoint %q: want http://host:4317, or https://host:4317 for TLS",
			s.Endpoint)
	}
	var err error
	s.Share, err = shareFromEnv(share, getenv)
	return s, err
}

func endpointFromEnv(getenv func(string) string) string {
	first := func(names ...string) string {
		for _, name := range names {
			if v := getenv(name); v != "" {
				return v
			}
		}
		return ""
	}
	protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	exporter := getenv("OTEL_TRACES_EXPORTER")
	if exporter != "" && exporter != "otlp" || protocol != "" && protocol != "grpc" {
		return ""
	}
	return first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
}

func shareFromEnv(share string, getenv func(string) string) (float64, error) {
	if share != "" {
		return parseShare(share)
	}
	switch getenv("OTEL_TRACES_SAMPLER") {
	case "traceidratio", "parentbased_traceidratio":
		// The standard requires that an invalid argument is ignored.
		if f, err := parseShare(getenv("OTEL_TRACES_SAMPLER_ARG")); err == nil {
			return f, nil
		}
	case "always_off", "parentbased_always_off":
		return 0, nil
	}
	return DefaultShare, nil
}

func parseShare(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > 1 {
		return 0, fmt.Errorf("--trace-sample %q: want a share from 0 to 1", text)
	}
	return f, nil
}
