// Package mask replaces secrets in texts that are stored or displayed, such as the output of a job.
//
// A program that has a secret may print it unchanged or encoded. For the secret a/b"c the package
// finds these forms, each also with line breaks in it:
//
//	plain            a/b"c
//	JSON, languages  a\/b\"c   a\u002fb\u0022c   a\u{2f}b\u{22}c   a\x2fb\x22c   a\57b\42c
//	URL              a%2fb%22c   a%u002fb%u0022c   (a space may be +)
//	HTML, XML        a/b&quot;c   a&#47;b&#34;c   a&#x2f;b&#x22;c
//	quoted-printable a=2Fb=22c
//	doubled quotes   a/b""c
//	base64           YS9iImM=   (standard or for URLs, with or without padding, also in the middle
//	                 of longer base64, of the secret and of its JSON or URL form)
//	hex              612f622263   61:2f:62:22:63   0x61, 0x2f, 0x62, 0x22, 0x63
//
// Hex digits may have either case. Up to three escapes may be nested, as in a\\/b\\\"c, and mixed with
// plain characters. The characters of base64 and hex may be escaped as well. Text that was read as
// Latin-1 and written as UTF-8 is found, too.
//
// If a secret has several lines, such as a PEM key, each line of [ShortestLine] bytes or more is also
// found alone, without the spaces around it, plain and escaped. All lines together are found with any
// spaces and line breaks between their characters.
//
// Other encodings are not found: a secret that is reversed, compressed, encrypted, hashed, written in
// another letter case, in base32 or as decimal numbers, or printed in parts; a soft line break of
// quoted-printable within an escape of another kind. Base64 and hex of a
// secret of less than [Shortest] bytes are not searched, because they would match almost anywhere.
//
// Invariants:
//
//  1. The text around a secret does not prevent a match.
//  2. Only whole secrets are masked, so that nobody can guess one piece by piece from what is masked. Of a
//     text that is shown in part, [Masker.Margin] bytes more are searched, and bytes next to a place where a
//     text was cut off before are dropped. So no part is shown of a secret that takes at most Margin bytes.
//  3. A text that takes more than 1,310,720 readings of its positions, about 20 ms of CPU time, is masked as a
//     whole. This depends on the text alone, so that it reveals nothing about a secret. Each reading is compared with
//     at most 64 places of each form of each secret. A text that matches at more places at the same time is masked
//     as a whole, which takes a secret that repeats its own beginning as often. Memory is bounded by the lengths of
//     the secrets and of the text.
//  4. Masking takes a time that depends on the lengths of the text and of the secrets only, so that the time of a run
//     or of a delivery does not show how much of a text was like a secret. Secrets of hundreds of similar lines may
//     take longer.
package mask
