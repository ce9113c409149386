package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Renames: see job.Rename for the steps. Each shard has a hash of the renames that have not ended. The shard of the
// new name has how far a rename is, and the shard of the old name the job that was taken; both may be one shard.

// Prefixes of the fields of that hash.
const (
	namedField = "to:"
	keptField  = "from:"
)

// keptJobText is a kept job as it is stored.
type keptJobText struct {
	job.Rename
	AtMS      unixtime.Milli   `json:"at"`
	RequestID string           `json:"request,omitempty"`
	By        job.Edit         `json:"by,omitzero"`
	Records   []keptRecordText `json:"records"`
	Revisions []byte           `json:"revisions,omitempty"`
	Signature string           `json:"signature,omitempty"`
}

// keptRecordText is a record of a kept job, with its texts as they were stored.
type keptRecordText struct {
	ID         job.RecordID    `json:"id"`
	State      []byte          `json:"state"`
	Definition []byte          `json:"definition"`
	IndexMS    unixtime.Milli  `json:"index"`
	Runs       []job.StoredRun `json:"runs,omitempty"`
}

// namedRenameText is a rename at its new name as it is stored.
type namedRenameText struct {
	job.NamedRename
	Lane job.Lane `json:"lane"` // of the record that keeps the name
}

func (t namedRenameText) encode() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic("redisstore: " + err.Error()) // texts and numbers can be written
	}
	return string(text)
}

// ReadStoredJob reads all that is stored of a job, to be taken for a rename; nil: there is no such job. A job of which
// something cannot be read is job.ErrCorrupt.
func (s *Store) ReadStoredJob(ctx context.Context, key job.Key) (*job.StoredJob, error) {
	shard, id := s.ShardOf(key), key.Record()
	ids := []job.RecordID{id}
	for slot := range job.DeadLettersPerJob {
		ids = append(ids, id.Letter(slot))
	}
	raw, err := s.readRaw(ctx, shard, ids)
	if err != nil || !raw[0].hasState {
		return nil, err
	}
	kept := keptJobText{Rename: job.Rename{From: key}}
	for i, r := range raw {
		if r.hasState {
			kept.Records = append(kept.Records, keptRecordText{ID: ids[i], State: []byte(r.state), Definition: []byte(r.def)})
		}
	}
	if err := s.readBesideRecords(ctx, shard, &kept); err != nil {
		return nil, err
	}
	out, err := kept.decode()
	if err != nil {
		s.runner.ReportCorrupt(shard, "rename", err, string(id))
		return nil, fmt.Errorf("%w: %w", job.ErrCorrupt, err)
	}
	return &out.Job, nil
}

// readBesideRecords reads the index entries, the histories and the revisions of records whose states were read. They
// change only with the states.
func (s *Store) readBesideRecords(ctx context.Context, shard int, kept *keptJobText) error {
	var ops []*runner.Op
	for _, r := range kept.Records {
		state, err1 := codec.DecodeState(r.ID, string(r.State))
		d, err2 := codec.DecodeDefinition(r.ID, string(r.Definition))
		if err1 != nil || err2 != nil {
			return nil // decode reports it
		}
		fields := make([]string, 0, codec.MaxHistory)
		for slot := range max(1, historyLimit(d)) {
			fields = append(fields, codec.HistoryField(r.ID, slot))
		}
		lane := s.shards[shard].LaneKey(state.Lane)
		ops = append(ops, runner.NewCommand("zscore", lane, "zscore", lane, string(r.ID)),
			runner.NewFieldsRead(shard, s.shards[shard].Hist, fields))
	}
	revisions := runner.NewFieldsRead(shard, s.shards[shard].Revisions, []job.RecordID{kept.Records[0].ID})
	revisions.ReplySize = largeDefinition
	ops = append(ops, revisions)
	if err := s.runner.Run(ctx, ops...); err != nil {
		return err
	}
	for i := range kept.Records {
		r, score, runs := &kept.Records[i], ops[2*i], ops[2*i+1].Reply
		_, r.IndexMS = job.SplitScore(score.Reply.ScoreAt(0))
		for slot := range runs {
			if runs.HasTextAt(slot) {
				r.Runs = append(r.Runs, job.StoredRun{Slot: slot, Text: []byte(runs.TextAt(slot))})
			}
		}
	}
	kept.Revisions = []byte(ops[len(ops)-1].Reply.TextAt(0))
	return nil
}

// decode decodes the job.
func (t *keptJobText) decode() (*job.KeptJob, error) {
	out := &job.KeptJob{Rename: t.Rename, AtMS: t.AtMS, RequestID: t.RequestID, By: t.By, Signature: t.Signature}
	for _, r := range t.Records {
		state, err := codec.DecodeState(r.ID, string(r.State))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.ID, err)
		}
		d, err := codec.DecodeDefinition(r.ID, string(r.Definition))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.ID, err)
		}
		out.Job.Records = append(out.Job.Records, job.StoredRecord{
			Record: job.Record{Definition: d, State: state, IndexMS: r.IndexMS}, ID: r.ID, Runs: r.Runs,
			StateText: string(r.State), DefinitionText: string(r.Definition),
		})
	}
	if len(out.Job.Records) == 0 {
		return nil, fmt.Errorf("%w: no records", codec.ErrCorrupt)
	}
	revisions, err := codec.DecodeRevisions(t.Records[0].ID, string(t.Revisions))
	if err != nil {
		return nil, err
	}
	out.Job.Revisions, out.Job.RevisionsText = revisions, string(t.Revisions)
	return out, nil
}

// ReserveName reserves the new name of a rename, for a job like this one. The result is job.Exists or job.Tombstone
// for a name that is taken, and job.Created otherwise. A call that comes too late fails with job.ErrConflict.
func (s *Store) ReserveName(ctx context.Context, r job.Rename, like *job.Record, now unixtime.Milli) (job.RenameHandle,
	job.CreateCode, error) {
	shard := s.ShardOf(r.To)
	place := job.RenamePlaceholder(r, true, like.Definition, like.State.Lane, now)
	state, def, err := s.encodeRecord(&place)
	h := job.RenameHandle{Shard: shard, Lane: place.State.Lane,
		NamedRename: job.NamedRename{Rename: r, Phase: job.RenameReserved, AtMS: now}}
	h.Entry = namedRenameText{h.NamedRename, h.Lane}.encode()
	if err != nil {
		return h, 0, err
	}
	k := s.shards[shard]
	o := runner.NewScriptCall(s.scripts.renameReserve, shard,
		[]string{k.Meta, k.State, k.Def, k.Lanes, k.Lock, k.Renames, k.LaneKey(h.Lane)},
		[]any{int64(now.Add(job.RenameTime)), string(r.To.Record()), state, job.Score(place.State.Region, place.IndexMS), def,
			namedField + r.ID, h.Entry})
	if err := s.runner.Run(ctx, o); err != nil {
		return h, 0, err
	}
	switch o.Reply.TextAt(2) {
	case "1":
		return h, job.Exists, nil
	case "2":
		return h, job.Tombstone, nil
	case "4":
		return h, 0, job.ErrConflict
	}
	return h, job.Created, nil
}

func (s *Store) encodeRecord(r *job.Record) (state string, def []byte, err error) {
	f := s.form()
	state, err = f.ForStates(historyLimit(r.Definition)).EncodeState(&r.State)
	if err == nil {
		def, err = f.EncodeDefinition(r.Definition)
	}
	if err != nil {
		err = fmt.Errorf("rename %s: %w", r.Definition.Record(), err)
	}
	return state, def, err
}

// TakeJob takes a job out of its records and lanes, and keeps it. taken is false if something of it has changed since
// it was read, or the call comes too late. It fails with job.ErrRenamedBefore if a rename with this request id has
// ended there. now is an instant of its shard.
func (s *Store) TakeJob(ctx context.Context, kept *job.KeptJob, now unixtime.Milli) (taken bool, err error) {
	shard := s.ShardOf(kept.From)
	first := &kept.Job.Records[0]
	place := job.RenamePlaceholder(kept.Rename, false, first.Definition, first.State.Lane, now)
	state, def, err := s.encodeRecord(&place)
	if err != nil {
		return false, err
	}
	text := keptJobText{Rename: kept.Rename, AtMS: kept.AtMS, RequestID: kept.RequestID, By: kept.By,
		Revisions: []byte(kept.Job.RevisionsText), Signature: kept.Signature}
	k := s.shards[shard]
	fixed := append(renameKeys(k), k.FinishedRenames)
	lanes := newLaneKeys(k, len(fixed))
	argv := []any{int64(now.Add(job.RenameTime)), keptField + kept.ID, "", state,
		job.Score(place.State.Region, place.IndexMS), def, finishedField(kept.From, kept.RequestID)}
	there := map[job.RecordID]*job.StoredRecord{}
	for i := range kept.Job.Records {
		r := &kept.Job.Records[i]
		there[r.ID] = r
		text.Records = append(text.Records, keptRecordText{ID: r.ID, State: []byte(r.StateText),
			Definition: []byte(r.DefinitionText), IndexMS: r.IndexMS, Runs: r.Runs})
		argv = append(argv, string(r.ID), lanes.placeOf(r.State.Lane), r.StateText, max(1, historyLimit(r.Definition)))
	}
	for slot := range job.DeadLettersPerJob {
		if id := first.ID.Letter(slot); there[id] == nil {
			argv = append(argv, string(id), 0, "", 0)
		}
	}
	entry, err := json.Marshal(&text)
	if err != nil {
		return false, fmt.Errorf("rename %s: %w", first.ID, err)
	}
	argv[2] = entry
	names := lanes.appendKeysTo(fixed)
	if s.events != nil {
		e := newEvent(job.KindJobDeleted, &first.Record)
		e.AtMS, e.DueMS, e.Reason = 0, 0, "renamed to "+kept.To.ID
		names, argv = append(names, k.Events), s.events.appendEventCount(append(argv, 1, encodeEvent(e)), 1)
	}
	o := runner.NewScriptCall(s.scripts.renameTake, shard, names, argv)
	if err := s.runner.Run(ctx, o); err != nil {
		return false, err
	}
	digit := o.Reply.TextAt(2)
	if digit == "5" {
		return false, job.ErrRenamedBefore
	}
	return digit == "0" || digit == "3", nil
}

// renameKeys are the first keys of the scripts that take and store jobs.
func renameKeys(k runner.ShardKeys) []string {
	return []string{k.Meta, k.State, k.Def, k.Hist, k.Lanes, k.Lock, k.Renames, k.Revisions, k.Objectives,
		k.Rankings[job.RankingFailing], k.Rankings[job.RankingLate]}
}

// StoreRenamed stores a job under its new name, if that is reserved as the handle has it. stored is false if the
// rename has another phase by now, or if the name is taken. now is an instant of the shard of the new name.
func (s *Store) StoreRenamed(ctx context.Context, h job.RenameHandle, as *job.StoredJob,
	now unixtime.Milli) (stored bool, reply job.CreateReply, err error) {
	done := h.NamedRename
	done.Phase, done.AtMS = job.RenameDone, now
	return s.storeJob(ctx, h.Shard, storeOfRename{
		id: h.ID, field: namedField + h.ID, from: h.Entry, to: namedRenameText{done, h.Lane}.encode(), lane: h.Lane,
		reason: "renamed from " + h.From.ID, job: as,
	})
}

// ReturnKept stores a kept job under its old name again. stored is false if it is not kept any more.
func (s *Store) ReturnKept(ctx context.Context, kept *job.KeptJob) (stored bool, reply job.CreateReply, err error) {
	as := kept.WithOldName()
	return s.storeJob(ctx, s.ShardOf(kept.From), storeOfRename{
		id: kept.ID, field: keptField + kept.ID, from: "*", lane: as.Records[0].State.Lane, reason: "not renamed", job: &as,
	})
}

// storeOfRename are the arguments of storeJob.
type storeOfRename struct {
	id, field, from, to string // of the entry
	lane                job.Lane
	reason              string // in the event
	job                 *job.StoredJob
}

func (s *Store) storeJob(ctx context.Context, shard int, a storeOfRename) (stored bool, reply job.CreateReply,
	err error) {
	k, first := s.shards[shard], &a.job.Records[0]
	fixed := renameKeys(k)
	lanes := newLaneKeys(k, len(fixed))
	revisions, err := s.form().EncodeRevisions(a.job.Revisions)
	if err != nil {
		return false, reply, fmt.Errorf("rename %s: %w", first.ID, err)
	}
	watch := ""
	if at := first.Definition.BreachAtMS(&first.State); at != 0 {
		watch = fmt.Sprint(int64(at))
	}
	ranks := first.State.Ranks()
	argv := []any{a.field, a.from, a.to, a.id, "", lanes.placeOf(a.lane), revisions, watch, rankText(ranks.Failing),
		rankText(ranks.Late)}
	token := uint64(0)
	for i := range a.job.Records {
		r := &a.job.Records[i]
		state, def, err := s.encodeRecord(&r.Record)
		if err != nil {
			return false, reply, err
		}
		token = max(token, r.State.Token, r.State.SettledToken)
		argv = append(argv, string(r.ID), lanes.placeOf(r.State.Lane), state, job.Score(r.State.Region, r.IndexMS), def,
			len(r.Runs))
		for _, run := range r.Runs {
			argv = append(argv, codec.HistoryField(r.ID, run.Slot), run.Text)
		}
	}
	argv[4] = codec.FixedWidth(token, 16)
	names := lanes.appendKeysTo(fixed)
	if s.events != nil {
		e := newEvent(job.KindJobRestored, &first.Record)
		e.AtMS, e.Reason = 0, a.reason
		names, argv = append(names, k.Events), s.events.appendEventCount(append(argv, 1, encodeEvent(e)), 1)
	}
	o := runner.NewScriptCall(s.scripts.renameStore, shard, names, argv)
	if err := s.runner.Run(ctx, o); err != nil {
		return false, reply, err
	}
	var news earlierLanes
	news.addPairs(lanes, o.Reply.ListAt(3), o.Reply.TextAt(4))
	reply.Earlier, reply.Holder = news.heads, news.holder
	return o.Reply.TextAt(2) == "0", reply, nil
}

// ReadRename reads how far a rename is at its new name. Its phase is "" if the shard does not know it.
func (s *Store) ReadRename(ctx context.Context, r job.Rename) (job.RenameHandle, error) {
	return s.readRename(ctx, s.ShardOf(r.To), r)
}

func (s *Store) readRename(ctx context.Context, shard int, r job.Rename) (job.RenameHandle, error) {
	h := job.RenameHandle{NamedRename: job.NamedRename{Rename: r}, Shard: shard}
	read := runner.NewFieldsRead(shard, s.shards[shard].Renames, []string{namedField + r.ID})
	if err := s.runner.Run(ctx, read); err != nil || !read.Reply.HasTextAt(0) {
		return h, err
	}
	var t namedRenameText
	if err := json.Unmarshal([]byte(read.Reply.TextAt(0)), &t); err != nil || t.ID != r.ID {
		return h, fmt.Errorf("%w: rename %s", job.ErrCorrupt, r.ID)
	}
	h.NamedRename, h.Entry, h.Lane = t.NamedRename, read.Reply.TextAt(0), t.Lane
	return h, nil
}

// ReadKept reads the job that the shard of an old name keeps for a rename; nil: it keeps none.
func (s *Store) ReadKept(ctx context.Context, shard int, id string) (*job.KeptJob, error) {
	read := runner.NewFieldsRead(shard, s.shards[shard].Renames, []string{keptField + id})
	read.ReplySize = maxReplyBytes
	if err := s.runner.Run(ctx, read); err != nil || !read.Reply.HasTextAt(0) {
		return nil, err
	}
	var t keptJobText
	if err := json.Unmarshal([]byte(read.Reply.TextAt(0)), &t); err != nil {
		return nil, fmt.Errorf("%w: rename %s: %w", job.ErrCorrupt, id, err)
	}
	kept, err := t.decode()
	if err != nil {
		return nil, fmt.Errorf("%w: rename %s: %w", job.ErrCorrupt, id, err)
	}
	return kept, nil
}

// renamesPerScan is about how many entries one command reads: a kept job has its payload and its history.
const renamesPerScan = 8

// ListRenames lists the renames of which some shards have an entry: those of which a shard keeps the job, and those of
// which it has the new name. Usually there are none, which takes one round trip.
func (s *Store) ListRenames(ctx context.Context, shards []int) (kept, named []job.RenameEnd, err error) {
	ops := make([]*runner.Op, len(shards))
	for i, shard := range shards {
		ops[i] = runner.NewCommand("hlen", s.shards[shard].Renames, "hlen", s.shards[shard].Renames)
	}
	err = s.runner.Run(ctx, ops...)
	for i, o := range ops {
		if o.Err != nil || o.Reply.IntAt(0) == 0 {
			continue
		}
		keptHere, namedHere, scanErr := s.scanRenames(ctx, shards[i])
		kept, named, err = append(kept, keptHere...), append(named, namedHere...), errors.Join(err, scanErr)
	}
	return kept, named, err
}

// scanRenames lists the renames of a shard. One may be listed twice.
func (s *Store) scanRenames(ctx context.Context, shard int) (kept, named []job.RenameEnd, err error) {
	key := s.shards[shard].Renames
	for at := "0"; ; {
		o := runner.NewCommand("hscan", key, "hscan", key, at, "count", renamesPerScan)
		if err := s.runner.Run(ctx, o); err != nil {
			return kept, named, err
		}
		pairs := o.Reply.ListAt(1)
		for i := 0; i+1 < len(pairs); i += 2 {
			if id, ok := strings.CutPrefix(pairs.TextAt(i), keptField); ok {
				kept = append(kept, job.RenameEnd{Shard: shard, ID: id})
			} else if id, ok := strings.CutPrefix(pairs.TextAt(i), namedField); ok {
				var t namedRenameText // who reads an entry that is not one reports it
				_ = json.Unmarshal([]byte(pairs.TextAt(i+1)), &t)
				named = append(named, job.RenameEnd{Shard: shard, ID: id, Phase: t.Phase, AtMS: t.AtMS})
			}
		}
		at = o.Reply.TextAt(0)
		if at == "0" {
			return kept, named, nil
		}
	}
}

// FindRename reads the rename of which a shard has the new name; its phase is "" if it has ended.
func (s *Store) FindRename(ctx context.Context, end job.RenameEnd) (job.RenameHandle, error) {
	return s.readRename(ctx, end.Shard, job.Rename{ID: end.ID})
}

// AbortRename aborts a rename that has not stored its job. aborted is false if it has a later phase by now.
func (s *Store) AbortRename(ctx context.Context, h job.RenameHandle, like job.Lane,
	now unixtime.Milli) (aborted bool, err error) {
	end := h.NamedRename
	end.Phase, end.AtMS = job.RenameAborted, now
	if h.Phase == "" {
		h.Lane = like
	}
	return s.endRename(ctx, h, namedField, namedRenameText{end, h.Lane}.encode(), h.To)
}

// ForgetRename removes what the shard of the new name has of a rename that has ended.
func (s *Store) ForgetRename(ctx context.Context, h job.RenameHandle) error {
	_, err := s.endRename(ctx, h, namedField, "", h.To)
	return err
}

// ReleaseName removes the kept job of a rename that is done, and frees the old name. The request id is kept from the
// same instant on.
func (s *Store) ReleaseName(ctx context.Context, kept *job.KeptJob) error {
	h := job.RenameHandle{Shard: s.ShardOf(kept.From), NamedRename: job.NamedRename{Rename: kept.Rename}, Entry: "*",
		Lane: kept.Job.Records[0].State.Lane}
	if kept.RequestID == "" {
		_, err := s.endRename(ctx, h, keptField, "", kept.From)
		return err
	}
	finished, err := json.Marshal(kept.Finished())
	if err == nil {
		_, err = s.endRename(ctx, h, keptField, "", kept.From, finishedField(kept.From, kept.RequestID), finished,
			job.FinishedRenamesAge.Milliseconds(), job.MaxFinishedRenames, job.KeptFinishedRenames)
	}
	return err
}

// endRename ends a rename in a shard. finished are the arguments that keep its request id.
func (s *Store) endRename(ctx context.Context, h job.RenameHandle, prefix, entry string, name job.Key,
	finished ...any) (done bool, err error) {
	k := s.shards[h.Shard]
	keys := []string{k.Meta, k.State, k.Def, k.Lanes, k.Lock, k.Renames, k.LaneKey(h.Lane)}
	if len(finished) > 0 {
		keys = append(keys, k.FinishedRenames, k.FinishedRenameTimes)
	}
	o := runner.NewScriptCall(s.scripts.renameEnd, h.Shard, keys,
		append([]any{prefix + h.ID, h.Entry, entry, string(name.Record()), h.ID}, finished...))
	if err := s.runner.Run(ctx, o); err != nil {
		return false, err
	}
	return o.Reply.TextAt(2) == "0", nil
}

// finishedField is the field of a request id among the renames that have ended; "" if it is "". Neither part has a
// space.
func finishedField(from job.Key, requestID string) string {
	if requestID == "" {
		return ""
	}
	return string(from.Record()) + " " + requestID
}

// ReadFinishedRename reads which job a request has renamed that had this name; nil: none is known.
func (s *Store) ReadFinishedRename(ctx context.Context, from job.Key, requestID string) (*job.FinishedRename, error) {
	shard := s.ShardOf(from)
	read := runner.NewFieldsRead(shard, s.shards[shard].FinishedRenames, []string{finishedField(from, requestID)})
	if err := s.runner.Run(ctx, read); err != nil || !read.Reply.HasTextAt(0) {
		return nil, err
	}
	finished := &job.FinishedRename{}
	if err := json.Unmarshal([]byte(read.Reply.TextAt(0)), finished); err != nil {
		return nil, fmt.Errorf("%w: finished rename of %s", job.ErrCorrupt, from.Record())
	}
	return finished, nil
}
