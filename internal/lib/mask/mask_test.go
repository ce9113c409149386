package mask_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"mime/quotedprintable"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/lib/mask"
)

func masker(secrets ...string) *mask.Masker {
	var m mask.Masker
	for _, s := range secrets {
		m.Add(s)
	}
	return &m
}

// each applies an encoding to every byte.
func each(format string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for i := range len(s) {
			fmt.Fprintf(&out, format, s[i])
		}
		return out.String()
	}
}

// eachRune applies an encoding to every character.
func eachRune(format string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for _, r := range s {
			fmt.Fprintf(&out, format, r)
		}
		return out.String()
	}
}

// eachUnit applies an encoding to every unit of UTF-16.
func eachUnit(format string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for _, u := range utf16.Encode([]rune(s)) {
			fmt.Fprintf(&out, format, u)
		}
		return out.String()
	}
}

func quoted(s string) string {
	text, _ := json.Marshal(s)
	return string(text[1 : len(text)-1])
}

func slashed(s string) string { return strings.ReplaceAll(quoted(s), "/", `\/`) }

func printable(s string) string {
	var out bytes.Buffer
	w := quotedprintable.NewWriter(&out)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return out.String()
}

// decodeLatin1 is what becomes of bytes that are taken for Latin-1 and written as UTF-8.
func decodeLatin1(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteRune(rune(s[i]))
	}
	return out.String()
}

func wrapped(s, with string, at int) string {
	var out strings.Builder
	for i, r := range []rune(s) {
		if i > 0 && i%at == 0 {
			out.WriteString(with)
		}
		out.WriteRune(r)
	}
	return out.String()
}

func std(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// escapes write characters in other ways; any of them may be within another.
var escapes = map[string]func(string) string{
	"as it is": func(s string) string { return s }, "JSON": quoted, "JSON of PHP": slashed,
	"JSON escapes": eachUnit(`\u%04x`), "JSON escapes in capitals": eachUnit(`\u%04X`), "braces": eachRune(`\u{%x}`),
	"bytes of C": each(`\x%02x`), "octal": each(`\%03o`),
	"a literal of Go": func(s string) string { q := strconv.QuoteToASCII(s); return q[1 : len(q)-1] },
	"query":           url.QueryEscape, "path": url.PathEscape, "every byte of a URL": each("%%%02X"),
	"in small letters": each("%%%02x"),
	"HTML":             html.EscapeString, "entities": eachRune("&#%d;"), "entities in hex": eachRune("&#x%x;"),
	"entities in hex, capitals": eachRune("&#X%04X;"),
	"quoted-printable":          printable, "every byte quoted": each("=%02X"),
	"doubled quotes": func(s string) string { return strings.ReplaceAll(s, `"`, `""`) },
	"a shell's":      func(s string) string { return strings.ReplaceAll(s, "'", `'\''`) },
}

// texts are the encodings of a whole secret.
var texts = map[string]func(string) string{
	"base64": std, "base64 for URLs": func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
	"base64 without padding": func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
	"behind a user":          func(s string) string { return std("user:" + s) },
	"behind a name":          func(s string) string { return std("me:" + s) },
	"in the middle":          func(s string) string { return std(`{"token":"` + s + `","a":1}`) },
	"before more":            func(s string) string { return std(s + ":x") },
	"base64 of JSON":         func(s string) string { return std("ab" + slashed(s) + "cd") },
	"base64 of a query":      func(s string) string { return std("a=" + url.QueryEscape(s)) },
	"wrapped":                func(s string) string { return wrapped(std(strings.Repeat("a", 70)+s), "\r\n", 76) },
	"wrapped often":          func(s string) string { return wrapped(std(s), "\n  ", 4) },
	"hex":                    func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hex in capitals":        func(s string) string { return fmt.Sprintf("%X", s) },
	"hex with spaces":        each("%02x "), "hex with colons": func(s string) string { return strings.TrimSuffix(each("%02X:")(s), ":") }, "hex with 0x": each("0x%02x, "),
	"hex wrapped": func(s string) string { return wrapped(hex.EncodeToString([]byte(s)), "\n", 7) },
	"over lines":  func(s string) string { return wrapped(s, "\r\n", 5) },
}

func init() {
	for name, encode := range escapes {
		texts[name] = encode
	}
	texts["read as Latin-1"] = func(s string) string { return decodeLatin1(s) }
	texts["read as Latin-1, JSON"] = func(s string) string { return strconv.QuoteToASCII(decodeLatin1(s)) }
}

// TestEncodingsAreMasked: whatever stands around it, a secret is masked in each encoding
// that is documented, and in two escapes around it.
func TestEncodingsAreMasked(t *testing.T) {
	for name, encode := range texts {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				secret := rapid.OneOf(
					rapid.StringMatching(`[A-Za-z0-9+/=_-]{8,60}`), rapid.StringMatching(`[ -~]{8,40}`),
					rapid.StringMatching(`[ -~äöü€😀]{8,20}`),
				).Draw(t, "secret")
				text := encode(secret)
				for range rapid.IntRange(0, 2).Draw(t, "depth") {
					text = escapes[rapid.SampledFrom([]string{
						"as it is", "JSON", "JSON of PHP", "JSON escapes", "query", "path", "in small letters",
						"HTML", "entities", "entities in hex",
					}).Draw(t, "escape")](text)
				}
				around := rapid.OneOf(rapid.StringMatching(`[ -~]{0,20}`),
					rapid.SampledFrom([]string{"%", `\`, "&", "&#", "=", "%2", `\u00`, `"`, "'", `\\`, "%25"}))
				before, after := around.Draw(t, "before"), around.Draw(t, "after")
				m := masker(secret)
				got := string(m.MaskText([]byte(before + text + after)))
				if !strings.Contains(got, mask.Mark) || len(got) >= len(before+text+after)+len(mask.Mark) {
					t.Fatalf("%q in %q became %q", secret, before+text+after, got)
				}
			})
		})
	}
}

// longestOf is the longest piece of one text in another.
func longestOf(text, in string) string {
	best := ""
	for from := range text {
		for len(text)-from > len(best) && strings.Contains(in, text[from:from+len(best)+1]) {
			best = text[from : from+len(best)+1]
		}
	}
	return best
}

// TestWhatIsMasked states some texts whole.
func TestWhatIsMasked(t *testing.T) {
	const secret = `s3cr"t/+one two`
	m := masker(secret, "hunter2hunter2")
	for text, want := range map[string]string{
		"nothing":                              "nothing",
		"a " + secret + " b " + secret:         "a [secret] b [secret]",
		secret + secret:                        "[secret][secret]",
		`{"auth":"s3cr\"t\/+one two"}`:         `{"auth":"[secret]"}`,
		`{"a":"{\"b\":\"s3cr\\\"t/+one two"`:   `{"a":"{\"b\":\"[secret]"`,
		"q=s3cr%22t%2f%2Bone+two&x=1":          "q=[secret]&x=1",
		"q=s3cr%2522t%252F%252bone%2520two&x":  "q=[secret]&x",
		"<p>s3cr&quot;t/+one&nbsp;two</p>":     "<p>s3cr&quot;t/+one&nbsp;two</p>", // another character
		"<p>s3cr&#34;t&#x2F;&plus;one two</p>": "<p>[secret]</p>",
		"<p>s3cr&amp;quot;t/+one two</p>":      "<p>[secret]</p>",
		"733363722274 2F2b6f6e652074776f.":     "[secret].",
		"Basic " + std("user:hunter2hunter2"):  "Basic dXNlcj[secret]==",
		"Basic " + std("hunter2hunter2:user"):  "Basic [secret]6dXNlcg==",
		"reversed 2retnuh2retnuh":              "reversed 2retnuh2retnuh",
		"HUNTER2HUNTER2":                       "HUNTER2HUNTER2",
	} {
		if got := string(m.MaskText([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// TestShortSecrets: they are masked as they are and escaped, and do not take other text away.
func TestShortSecrets(t *testing.T) {
	m := masker("a/b")
	for text, want := range map[string]string{
		"x a/b y": "x [secret] y", `"a\/b"`: `"[secret]"`, "a%2fb": "[secret]",
		std("a/b") + " 612f62": std("a/b") + " 612f62",
	} {
		if got := string(m.MaskText([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := string(masker("").MaskPart([]byte("text"))); got != "text" {
		t.Errorf("the empty secret: %q", got)
	}
}

// keyOf is a key in PEM of so many full lines and a last one of 24 characters.
func keyOf(lines int) string {
	var out strings.Builder
	out.WriteString("-----BEGIN PRIVATE KEY-----\n")
	for i := range lines + 1 {
		sum := sha256.Sum256([]byte{byte(i)})
		wide := sha256.Sum256(sum[:])
		line := std(string(sum[:]) + string(wide[:16]))
		if i == lines {
			line = line[:24]
		}
		out.WriteString(line + "\n")
	}
	return out.String() + "-----END PRIVATE KEY-----"
}

// TestLinesOfSecretsAreMasked: nothing is left of a key in PEM that is written in other lines.
func TestLinesOfSecretsAreMasked(t *testing.T) {
	key := keyOf(25)
	lines := strings.Split(key, "\n")
	joined := strings.Join(lines, "")
	for name, text := range map[string]string{
		"CRLF": strings.ReplaceAll(key, "\n", "\r\n"), "indented": "    " + strings.ReplaceAll(key, "\n", "\n    "),
		"tabs":   strings.ReplaceAll(key, "\n", "\n\t"),
		"spaces": strings.ReplaceAll(key, "\n", " "), "nothing": joined, "commas": strings.Join(lines, ", "),
		"wrapped": wrapped(joined, "\n  ", 50),
		"quoted":  "> " + strings.Join(lines, "\n> "), "list of JSON": `["` + strings.Join(lines, `","`) + `"]`,
		"PHP":         `["` + strings.ReplaceAll(strings.Join(lines, `","`), "/", `\/`) + `"]`,
		"backslash n": strings.Join(lines, `\n`), "backslash backslash n": strings.Join(lines, `\\n`),
		"query": url.QueryEscape(strings.Join(lines, " ")),
		"HTML":  "<br>" + strings.Join(lines, "<br>"), "reversed lines": lines[9] + "\n" + lines[8] + "\n" + lines[7],
		"one line": "key: " + lines[3] + "!",
		"entities": strings.ReplaceAll(strings.Join(lines, "&#10;"), "+", "&#43;"),
	} {
		for form, got := range map[string]string{"whole": string(masker(key).MaskText([]byte(text))),
			"piece": string(masker(key).MaskPart([]byte("~ " + text + " ~")))} {
			if piece := longestOf(key, got); len(piece) >= mask.Shortest || !strings.Contains(got, mask.Mark) {
				t.Errorf("%s, %s: %q is left in %q", name, form, piece, got)
			}
		}
	}
	// Less than four characters of a line are not taken for it.
	for _, text := range []string{"started", "a b c d", "done: Mi"} {
		if got := string(masker(key).MaskPart([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := string(masker("one\ntwo").MaskText([]byte("one two onetwo"))); got != "one two onetwo" {
		t.Errorf("short lines: %q", got)
	}
}

// TestCutEncodings: of a text that was cut, no more is left of a secret than less than four
// characters of base64 or hex, or of one escape.
func TestCutEncodings(t *testing.T) {
	const secret = `X7$kq"9/ZpW+4&vT<20>`
	m := masker(secret)
	for name, encode := range texts {
		if strings.Contains(name, "behind") || strings.Contains(name, "before more") ||
			strings.HasPrefix(name, "in the middle") || strings.HasPrefix(name, "base64 of") ||
			strings.HasPrefix(name, "wrapped") {
			continue
		}
		form := encode(secret)
		text := "~~~~ " + form + " ~~~~"
		for from := range len(text) {
			for _, to := range []int{len(text), 5 + len(form)/2, 5 + len(form) - 1} {
				if to-from < 6 {
					continue
				}
				got := string(m.MaskPart([]byte(text[from:to])))
				if piece := longestOf(form, got); len(strings.Trim(piece, "= \n")) > 10 {
					t.Fatalf("%s: %q became %q, which has %q", name, text[from:to], got, piece)
				}
			}
		}
	}
}

// TestWorkIsBounded: texts and secrets that repeat themselves do not take long, and what
// takes too long is masked as a whole.
func TestWorkIsBounded(t *testing.T) {
	long := strings.Repeat("a", 8<<10)
	for name, text := range map[string]string{
		"the secret's letter": strings.Repeat("a", 72<<10), "backslashes": strings.Repeat(`\`, 72<<10),
		"percent signs": strings.Repeat("%25", 24<<10),
		"ampersands":    strings.Repeat("&amp;", 14<<10), "base64": strings.Repeat("YWFh", 18<<10),
	} {
		got := string(masker(long).MaskPart([]byte(text)))
		if strings.Contains(got, long) || strings.Contains(got, "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh") {
			t.Errorf("%s: %d bytes are left", name, len(got))
		}
	}
}

// TestCutEscapes: what a text begins with may be the end of an escape of up to 12 bytes.
func TestCutEscapes(t *testing.T) {
	for text, want := range map[string]string{"amp;1amp;34;one.": "[secret].", "acramp;5amp;one=": "[secret]=",
		"abcdamp;5quot;one=": "abcdamp;5quot;one="} {
		if got := string(masker("s3cr-t/+one").MaskPart([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// overshoot is how many steps the last place that is looked at may take beyond the bound: those of all states
// there, sorted, in each way to go on.
const overshoot = 1 << 14

// repeated is a text of about 80 KiB.
func repeated(piece string) []byte { return []byte(strings.Repeat(piece, 80<<10/len(piece))) }

// TestStepsAreCounted: texts that can be read in many ways exhaust the bound, and are
// masked whole.
func TestStepsAreCounted(t *testing.T) {
	m := masker("s3cr-t/+one two5")
	for _, piece := range []string{`''\`, `'\''`, `\'`, `'`, `"`, `\`} {
		text := repeated(piece)
		if n := m.Steps(text); n <= mask.MaxSteps || n > mask.MaxSteps+overshoot {
			t.Errorf("%q took %d steps, want about %d", piece, n, mask.MaxSteps)
		}
		if got := string(m.MaskPart(text)); got != mask.Mark {
			t.Errorf("%q: %d bytes are left", piece, len(got))
		}
	}
}

// TestRepeatedTextsStayWithinTheBound: no short text that is repeated takes more steps.
func TestRepeatedTextsStayWithinTheBound(t *testing.T) {
	m := masker("s3cr-t/+one two5")
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.StringMatching(`[\\%&=+'"uUx#{};0257cn\n]{1,6}`).Draw(t, "piece")
		if n := m.Steps(repeated(piece)); n > mask.MaxSteps+overshoot {
			t.Fatalf("%q took %d steps", piece, n)
		}
	})
}

// TestOrdinaryTextsAreShown: large answers of usual kinds are not masked whole, with a short
// secret and with the longest.
func TestOrdinaryTextsAreShown(t *testing.T) {
	long := strings.Repeat("k3y/+ \"<&>one2", 600)[:8<<10]
	for name, secret := range map[string]string{"short": "s3cr-t/+one two5", "long": long, "key": keyOf(120)} {
		m := masker(secret)
		for _, piece := range []string{
			`{"id":"16C7e42F","ok":true,"note":"nothing \"to\" see\/here","u":"\u00e4 a=b&c=d%20x"},` + "\n",
			`<a href="/x?a=1&amp;b=%2f" class='y z'>it&#39;s &quot;fine&quot;</a>` + "\n",
			`[{"name":"it's","path":"C:\\dir\\file","sum":1.5e+3}]` + "\n",
			"level=info msg=\"started\" time=2030-01-01T00:00:00+02:00\n",
		} {
			for _, before := range []string{"", "\n\n", strings.Repeat(" ", 40)} {
				if got := m.MaskPart([]byte(before + string(repeated(piece)))); len(got) < 70<<10 {
					t.Errorf("%s secret: of %q behind %q, %d bytes are left, %d steps", name, piece, before, len(got),
						m.Steps([]byte(before+string(repeated(piece)))))
				}
			}
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add("secret", `\u0073ecret %73ecret &#115;ecret c2VjcmV0 736563726574`)
	f.Add("a", "a")
	f.Add(`\`, `\\\\\\\\`)
	f.Fuzz(func(t *testing.T, secret, text string) {
		if secret == "" || strings.Contains(mask.Mark, secret) {
			return
		}
		m := masker(secret)
		for _, got := range [][]byte{m.MaskText([]byte(text)), m.MaskPart([]byte(text))} {
			// What is around a mark may make the secret anew: a mark has to be in it then.
			for _, part := range strings.Split(string(got), mask.Mark) {
				if strings.Contains(part, secret) {
					t.Fatalf("%q in %q became %q", secret, text, got)
				}
			}
		}
	})
}

func BenchmarkMask(b *testing.B) {
	m := masker("ghp_16C7e42F292c6912E7710c838347Ae178B4a")
	text := []byte(strings.Repeat(`{"id":"16C7e42F","ok":true,"note":"nothing \"to\" see\/here"}`, 1200))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		m.MaskPart(text)
	}
}
