package fsck

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// checkRunPayloads compares the payloads that runs and dead letters have of their own with their descriptions. What
// differs is read again: it may have changed since its state was read.
func (a *check) checkRunPayloads(ids []job.RecordID, states []job.State) error {
	var own []job.RecordID
	var infos []*job.PayloadInfo
	for i, s := range states {
		if s.OwnPayload != nil {
			own, infos = append(own, ids[i]), append(infos, s.OwnPayload)
		}
	}
	for range rereads {
		if len(own) == 0 {
			return nil
		}
		payloads, err := a.store.RunPayloads(a.ctx, a.shard, own)
		if err != nil {
			return err
		}
		var wrong []job.RecordID
		for i, p := range payloads {
			if !infos[i].Describes(p) {
				wrong = append(wrong, own[i])
			}
		}
		own, infos, err = a.readPayloadInfos(wrong)
		if err != nil {
			return err
		}
	}
	for _, id := range own {
		a.unusable[id] = true
		a.addFinding(job.Finding{Fault: job.FaultNoDefinition, Record: id,
			Detail: "the payload of the run is missing, or is not the one that its state describes; cancel the run, or " +
				"discard it"})
	}
	return nil
}

// rereads is how often a record is read before its payload counts as wrong.
const rereads = 3

// readPayloadInfos reads the descriptions of payloads again. Records that are gone are left out.
func (a *check) readPayloadInfos(ids []job.RecordID) (own []job.RecordID, infos []*job.PayloadInfo, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	o := runner.NewFieldsRead(a.shard, a.keys.State, ids)
	if err := a.runner.Run(a.ctx, o); err != nil {
		return nil, nil, err
	}
	for i, id := range ids {
		if !o.Reply.HasTextAt(i) {
			continue
		}
		s, err := codec.DecodeState(id, o.Reply.TextAt(i))
		if err == nil && s.OwnPayload != nil {
			own, infos = append(own, id), append(infos, s.OwnPayload)
		}
	}
	return own, infos, nil
}
