package codec

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// triggerOwnPayload is the stored trigger of a manual run that has a payload of its own. A node of an earlier version,
// which would run it with the job's payload, cannot read such a state and sets its record aside.
const triggerOwnPayload = uint64(job.TriggerBackfill) + 1

func storedTrigger(s *job.State) uint64 {
	if s.OwnPayload != nil {
		return triggerOwnPayload
	}
	return uint64(s.Trigger)
}

// storeTrigger stores the trigger. The description of the payload follows in a field of its own.
func storeTrigger(s *job.State, v uint64) {
	if v == triggerOwnPayload {
		s.Trigger, s.OwnPayload = job.TriggerManual, new(job.PayloadInfo)
		return
	}
	s.Trigger = job.Trigger(v)
}

// encodePayloadInfo encodes the description of a payload: size, 1 if it is sealed, and digest, separated by spaces.
func encodePayloadInfo(i *job.PayloadInfo) string {
	return strconv.Itoa(i.Size) + " " + string(flagDigit(i.Sealed)) + " " + hex.EncodeToString(i.Digest[:])
}

func (f tailField) storePayloadInfo(s *job.State) error {
	parts := strings.Split(f.text, " ")
	if !f.isText || len(parts) != 3 || s.OwnPayload == nil {
		return fmt.Errorf("%w: field %q is not that of a run's own payload", ErrCorrupt, f.letter)
	}
	size, err := strconv.ParseUint(parts[0], 10, 31)
	digest, err2 := hex.DecodeString(parts[2])
	if err != nil || err2 != nil || len(digest) != len(s.OwnPayload.Digest) || parts[1] != "0" && parts[1] != "1" {
		return fmt.Errorf("%w: field %q is not that of a run's own payload", ErrCorrupt, f.letter)
	}
	*s.OwnPayload = job.PayloadInfo{Size: int(size), Sealed: parts[1] == "1", Digest: [32]byte(digest)}
	return nil
}

// checkPayloadInfo refuses a state whose run has a payload of its own that is not described.
func checkPayloadInfo(s *job.State) error {
	if s.OwnPayload != nil && *s.OwnPayload == (job.PayloadInfo{}) {
		return fmt.Errorf("%w: the run's own payload is not described", ErrCorrupt)
	}
	return nil
}

func payloadInfoToMessage(i *job.PayloadInfo) *storagev1.RunPayload {
	if i == nil {
		return nil
	}
	return &storagev1.RunPayload{Size: uint64(i.Size), Sealed: i.Sealed, Sha256: i.Digest[:]}
}

func payloadInfoOfMessage(m *storagev1.RunPayload) *job.PayloadInfo {
	if m == nil {
		return nil
	}
	i := &job.PayloadInfo{Size: int(min(m.Size, 1<<31)), Sealed: m.Sealed}
	copy(i.Digest[:], m.Sha256)
	return i
}

// EncodeRunPayload encodes the payload of a run: a definition that has nothing else. Appended to a definition without
// a payload, it makes one with this payload.
func EncodeRunPayload(p *job.RunPayload) ([]byte, error) {
	b, err := deterministic.Marshal(&storagev1.Definition{Payload: p.Payload, PayloadKey: p.Key})
	if err != nil {
		return nil, fmt.Errorf("payload of a run: %w", err)
	}
	return b, nil
}

// DecodeRunPayload decodes the payload of a run, or that of a dead letter's definition.
func DecodeRunPayload(text string) (*job.RunPayload, error) {
	var m storagev1.Definition
	if err := proto.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("%w: payload of a run: %w", ErrCorrupt, err)
	}
	return &job.RunPayload{Payload: m.Payload, Key: m.PayloadKey}, nil
}
