// Package mask finds secrets in texts that are kept or shown, and puts a mark in
// their place.
//
// Whoever was given a secret may send it back as it is, or in an encoding. These are
// found, each also with line breaks in it:
//
//	as it is         every byte on its own
//	escapes          JSON and the languages that it comes from (\", \/, \u002f, \u{2f},
//	                 \x2f, \57), URLs (%2f, + for a space, %u002f), HTML and XML
//	                 (&quot;, &#47;, &#x2f;), quoted-printable (=2F), and quotes that are
//	                 doubled; hex digits in either case; up to three of these within
//	                 one another, mixed with characters as they are
//	base64           standard and for URLs, with padding or without, also in the middle
//	                 of longer base64, of the secret and of its JSON or URL form
//	hex              in either case, also with ":", "-", ",", spaces or 0x between bytes
//
// Of a secret of several lines, a key in PEM say, each line of [ShortestLine] bytes or more is
// found by itself, without the spaces around it, as it is and in escapes. So are all lines
// together, whatever spaces and line breaks are between their characters.
//
// The characters of base64 and hex may be escaped as well. Text that was read as
// Latin-1 and written as UTF-8 is found, too.
//
// What is no usual encoding is not found: a secret that is reversed, compressed,
// encrypted, hashed, written in other letter case, in base32 or as decimal numbers, or of
// which parts are said one by one. Of a secret of less than [Shortest] bytes, base64 and hex
// are not looked for, as they would be found everywhere.
//
// Invariants:
//
//  1. What stands around a secret does not keep it from being found.
//  2. Of a text that was cut out of a longer one, the end of a secret at its beginning and
//     the beginning of a secret at its end are masked as well, of base64, hex and
//     lines from [Shortest] characters on.
//  3. Time is bounded by the lengths of text and secrets, and in any case by 1,310,720
//     steps, about 20 ms of CPU time, after which all of the text is masked. Each way to read
//     a place and each place of a pattern that is compared counts. Memory is bounded by the length of the
//     secrets and that of the text.
package mask
