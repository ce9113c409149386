package job

import "slices"

// MaxRecent bounds RequestIDs.
const MaxRecent = 8

// RequestIDs are ids of the last calls of a kind about a job, newest last, so that a
// repetition is known. Records share them: they are not changed in place.
type RequestIDs []string

// With returns the list with another id.
func (ids RequestIDs) With(id string) RequestIDs {
	ids = append(ids[:len(ids):len(ids)], id)
	return ids[max(0, len(ids)-MaxRecent):]
}

// Has reports whether an id is one of them; an empty one never is.
func (ids RequestIDs) Has(id string) bool { return id != "" && slices.Contains(ids, id) }

// Split returns the last id by itself, where there is one.
func (ids RequestIDs) Split() (earlier []string, last string) {
	if len(ids) == 0 {
		return nil, ""
	}
	return ids[:len(ids)-1], ids[len(ids)-1]
}

// JoinRequestIDs undoes Split. It takes no bounds for granted.
func JoinRequestIDs(earlier []string, last string) RequestIDs {
	if last == "" {
		return earlier
	}
	return append(earlier[:len(earlier):len(earlier)], last)
}
