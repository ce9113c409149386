// Package urlmask names URLs in texts for others than their owner, without the parts that may be credentials.
//
// Many receivers take a long random segment of the path as the credential of the caller, as webhooks of chats do. A
// segment of [ShortestSegment] bytes or more is therefore taken for one, and so are user, query and fragment.
//
// Invariant: [Describe] shows no segment that [Secrets] returns, and nothing of user, query and fragment.
package urlmask

import (
	"net/url"
	"strings"
)

const (
	// ShortestSegment is from how many bytes on a segment of a path may be a credential. The bytes are those of the
	// URL, with its percent-encoding.
	ShortestSegment = 16
	// shortestValue is from how many bytes on a part of a query, or a password, is looked for in other texts.
	shortestValue = 8
	// hidden stands for a segment that may be a credential.
	hidden = "[..]"
)

// Describe returns scheme, host and path of a URL, with "[..]" for segments that may be credentials.
func Describe(u *url.URL) string {
	segments := strings.Split(u.EscapedPath(), "/")
	for i, segment := range segments {
		if mayBeCredential(segment) {
			segments[i] = hidden
		}
	}
	origin := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"}
	return strings.TrimSuffix(origin.String(), "/") + strings.Join(segments, "/")
}

func mayBeCredential(segment string) bool { return len(segment) >= ShortestSegment }

// Secrets returns the parts of a URL that a receiver may repeat and that must not be shown: long segments of the path,
// and of user, query and fragment what is long enough to be looked for.
func Secrets(u *url.URL) (list []string) {
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if mayBeCredential(segment) {
			list = append(list, unescape(segment))
		}
	}
	for _, text := range valuesOf(u) {
		if len(text) >= shortestValue {
			list = append(list, text)
		}
	}
	return list
}

// valuesOf returns the values of user, query and fragment.
func valuesOf(u *url.URL) []string {
	password, _ := u.User.Password()
	list := []string{u.User.Username(), password, u.RawQuery, u.Fragment}
	for _, values := range u.Query() {
		list = append(list, values...)
	}
	return list
}

// unescape decodes a segment, or returns it as it is if that is impossible.
func unescape(segment string) string {
	text, err := url.PathUnescape(segment)
	if err != nil {
		return segment
	}
	return text
}
