package codec

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fermata-io/fermata/internal/core/job"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// storedEdit is the call that stored a revision, as stored.
type storedEdit struct {
	revision uint32
	edit     job.Edit
}

func encodeEdit(d *job.Definition) *storagev1.Edit {
	if d.LastEdit == (job.Edit{}) {
		return nil
	}
	return &storagev1.Edit{Revision: d.Revision, Identity: d.LastEdit.Identity, Method: d.LastEdit.Method}
}

func decodeEdit(m *storagev1.Edit) storedEdit {
	return storedEdit{m.GetRevision(), job.Edit{Identity: m.GetIdentity(), Method: m.GetMethod()}}
}

// applyTo sets the last edit of a definition, unless a node that records no edits has edited it since.
func (s storedEdit) applyTo(d *job.Definition) {
	if s.revision == d.Revision {
		d.LastEdit = s.edit
	}
}

// readEdit decodes the last edit without a generated message; false for what decodeMessage has to decode.
func (r *DefinitionDecoder) readEdit(data []byte) bool {
	e := &r.presentEdit
	return eachField(data, func(n protowire.Number, v uint64, text []byte) bool {
		switch {
		case n == fieldEditRevision && text == nil:
			e.revision = uint32(v)
		case n == fieldEditIdentity && text != nil && utf8.Valid(text):
			e.edit.Identity = string(text)
		case n == fieldEditMethod && text != nil && utf8.Valid(text):
			return readName(&e.edit.Method, &r.method, text)
		default:
			return false
		}
		return true
	})
}

// EncodeRevision encodes a definition as an entry of the message Revisions: messages of one entry each, one after
// the other, are a message of all of them.
func (f Encoding) EncodeRevision(d *job.Definition) ([]byte, error) {
	text, err := f.EncodeDefinition(d.AsRevision())
	if err != nil {
		return nil, err
	}
	entry := protowire.AppendTag(make([]byte, 0, len(text)+8), fieldRevisionsDefinitions, protowire.BytesType)
	return protowire.AppendBytes(entry, text), nil
}

// EncodeRevisions encodes revisions, newest first: as many as there is room for.
func (f Encoding) EncodeRevisions(list []*job.Definition) (text []byte, err error) {
	for _, d := range list[:min(len(list), job.MaxRevisions)] {
		entry, err := f.EncodeRevision(d)
		if err != nil {
			return nil, err
		}
		if len(text)+len(entry) > job.MaxRevisionBytes {
			break
		}
		text = append(text, entry...)
	}
	return text, nil
}

// DecodeRevisions decodes the stored revisions of a job, newest first. With an error it returns those before the
// corrupt one.
func DecodeRevisions(record job.RecordID, text string) (list []*job.Definition, err error) {
	good := eachField([]byte(text), func(n protowire.Number, _ uint64, entry []byte) bool {
		if n != fieldRevisionsDefinitions {
			return true // of a later version
		}
		d, decodeErr := DecodeDefinition(record, string(entry))
		if decodeErr != nil {
			err = decodeErr
			return false
		}
		list = append(list, d)
		return true
	})
	if !good && err == nil {
		err = fmt.Errorf("%w: revisions", ErrCorrupt)
	}
	return list, err
}
