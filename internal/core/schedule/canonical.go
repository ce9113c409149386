package schedule

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// UsesHash reports whether an expression of s, or of its exclusions, contains H.
func (s *Spec) UsesHash() bool {
	return slices.ContainsFunc(s.Cron, containsHash) || slices.ContainsFunc(s.Exclude.Cron, containsHash)
}

// containsHash reports whether an expression has an H that the seed settles. The names of days contain the letter too.
func containsHash(text string) bool {
	for i := range len(text) {
		if text[i] == 'H' && (i == 0 || text[i-1] == ' ' || text[i-1] == '\t' || text[i-1] == ',') {
			return true
		}
	}
	return false
}

// ResolveHash returns s with each H replaced by the numbers that the seed gives it, so that jobs with equal results
// have equal nominal times. An expression that is invalid remains as it is.
func (s Spec) ResolveHash(seed uint64) Spec {
	s.Cron = resolveHashes(s.Cron, seed)
	s.Exclude.Cron = resolveHashes(s.Exclude.Cron, seed)
	return s
}

func resolveHashes(texts []string, seed uint64) []string {
	if !slices.ContainsFunc(texts, containsHash) {
		return texts
	}
	resolved := slices.Clone(texts)
	for i, text := range resolved {
		words := strings.Fields(text)
		if containsHash(text) && resolveHash(words, seed) == nil {
			resolved[i] = strings.Join(words, " ")
		}
	}
	return resolved
}

// AppendCanonical appends a text that two specs have in common if and only if they are Equal.
func (s *Spec) AppendCanonical(b []byte) []byte {
	b = append(b, byte(s.Kind), byte(s.Gap), byte(s.Repeat), flagByte(s.FixedDelay), flagByte(s.Seconds))
	for _, t := range [...]time.Time{s.At, s.StartAt, s.EndAt} {
		b = appendInstant(b, t)
	}
	for _, n := range [...]int64{int64(s.Every), int64(s.Jitter), int64(s.MaxRuns)} {
		b = binary.AppendVarint(b, n)
	}
	b = appendText(b, s.TimeZone)
	for _, texts := range [...][]string{s.Cron, s.Exclude.Cron, s.Exclude.Dates, s.Exclude.Windows} {
		b = appendTexts(b, texts)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Exclude.Periods)))
	for _, p := range s.Exclude.Periods {
		b = appendInstant(appendInstant(b, p.From), p.To)
	}
	return s.Calendar.appendCanonical(b)
}

func (c *Calendar) appendCanonical(b []byte) []byte {
	b = append(binary.AppendVarint(b, int64(c.Every)), byte(c.Unit), byte(c.ShortMonth))
	b = appendTexts(appendText(b, c.From), c.Times)
	b = binary.AppendUvarint(b, uint64(len(c.Weekdays)))
	for _, day := range c.Weekdays {
		b = binary.AppendVarint(b, int64(day))
	}
	b = binary.AppendUvarint(b, uint64(len(c.MonthDays)))
	for _, day := range c.MonthDays {
		b = binary.AppendVarint(b, int64(day))
	}
	return b
}

func flagByte(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func appendInstant(b []byte, t time.Time) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, t.Unix()), int64(t.Nanosecond()))
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendTexts(b []byte, texts []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(texts)))
	for _, text := range texts {
		b = appendText(b, text)
	}
	return b
}
