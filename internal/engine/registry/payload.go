package registry

import (
	"bytes"

	"github.com/fermata-io/fermata/internal/core/job"
)

// unfitSealedPayload is all that an answer says about a sealed payload: what the check finds quotes it.
const unfitSealedPayload = "does not take the payload of the job, which is sealed: set the payload too"

// payloadFaults lists what is wrong with the payload of a definition that is to replace another one, or none
// (nil). A payload that stays what it was, for the same handler, is not checked: a job from before the
// check can be edited.
func (r *Registry) payloadFaults(d, stored *job.Definition, limits job.Limits) []job.Violation {
	if r.o.CheckPayload == nil || d.PayloadSize() > limits.MaxPayload {
		return nil
	}
	kept := stored != nil && d.PayloadKey == stored.PayloadKey && bytes.Equal(d.Payload, stored.Payload)
	payload := d.Payload
	switch {
	case kept && d.Handler == stored.Handler:
		return nil
	case d.PayloadKey == "":
	case !kept:
		return nil // what cannot be read cannot be checked
	default:
		var err error
		payload, err = r.openPayload(stored)
		if err != nil || len(r.o.CheckPayload(d.Handler, payload)) == 0 {
			return nil
		}
		return []job.Violation{{Field: "job.handler", Description: unfitSealedPayload}}
	}
	return payloadFieldFaults("job.payload", r.o.CheckPayload(d.Handler, payload))
}

// payloadFieldFaults puts the field that has the payload before the paths of faults.
func payloadFieldFaults(field string, faults []job.Violation) []job.Violation {
	for i, f := range faults {
		switch {
		case f.Field == "":
			faults[i].Field = field
		case f.Field[0] == '[':
			faults[i].Field = field + f.Field
		default:
			faults[i].Field = field + "." + f.Field
		}
	}
	return faults
}
