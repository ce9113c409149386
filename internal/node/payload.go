package node

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/payload"
)

// CheckedHandlers are the handlers whose payloads a node can validate: all that [Config].ValidatePayloads may
// name.
func CheckedHandlers() []string { return payload.Handlers() }

// payloadValidator validates the payloads of some of the ready-made handlers.
func payloadValidator(handlers []string) func(handler string, text []byte) []job.Violation {
	check := payload.ValidatorFor(handlers)
	return func(handler string, text []byte) []job.Violation {
		var v []job.Violation
		for _, f := range check(handler, text) {
			v = append(v, job.Violation{Field: f.Field, Description: f.Text})
		}
		return v
	}
}
