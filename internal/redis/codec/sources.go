package codec

import (
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// groupSources is a bit beside groupRetry and groupBackoff for [DefinitionDecoder.firstOccurrence].
const groupSources = allGroups + 1

// groupEdit is another one, for the last edit.
const groupEdit = groupSources << 1

// storedSources are the sources of the values of a definition's policies, as stored.
type storedSources struct {
	revision uint32
	groups   []backoff.Group
}

func encodeSources(d *job.Definition) *storagev1.PolicySources {
	if len(d.Sources) == 0 {
		return nil
	}
	m := &storagev1.PolicySources{Revision: d.Revision}
	for _, g := range d.Sources {
		m.Groups = append(m.Groups, &storagev1.SourceGroup{Kind: uint32(g.Source.Kind), Name: g.Source.Name,
			Fields: uint32(g.Fields)})
	}
	return m
}

// decodeSources replaces kinds of a later version by the greatest kind: the job then counts as the source.
func decodeSources(m *storagev1.PolicySources) storedSources {
	s := storedSources{revision: m.GetRevision()}
	for _, g := range m.GetGroups() {
		s.groups = append(s.groups, backoff.Group{
			Source: backoff.Source{Kind: backoff.SourceKind(min(g.GetKind(), 255)), Name: g.GetName()},
			Fields: backoff.FieldSet(g.GetFields()),
		})
	}
	return s
}

// decodeSourcesText is decodeSources of encoded text; false if it is corrupt.
func decodeSourcesText(text []byte) (storedSources, bool) {
	var m storagev1.PolicySources
	err := proto.Unmarshal(text, &m)
	return decodeSources(&m), err == nil
}

// applyTo sets the sources of a definition, unless a node without sources has edited it since.
func (s storedSources) applyTo(d *job.Definition) {
	if s.revision == d.Revision {
		d.Sources = s.groups
	}
}
