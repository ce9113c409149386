package mask_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"mime/quotedprintable"
	"net/url"
	"sort"
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
					rapid.SampledFrom([]string{"%", `\`, "&", "&#", "=", "%2", `\u00`, `"`, "'", `\\`, "%25", "0", "07"}))
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
		// The last escaped digits may be read as part of others, with the digit after the secret.
		`s3cr\u005c\u0022t/+one two0`:          `[secret]0`,
		`s3cr"t/+one\\u0025\\u0032\\u0030two0`: `[secret]0`,
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
	if got := string(masker("").MaskText([]byte("text"))); got != "text" {
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
		got := string(masker(key).MaskText([]byte(text)))
		if piece := longestOf(key, got); len(piece) >= mask.Shortest || !strings.Contains(got, mask.Mark) {
			t.Errorf("%s: %q is left in %q", name, piece, got)
		}
	}
	if got := string(masker("one\ntwo").MaskText([]byte("one two onetwo"))); got != "one two onetwo" {
		t.Errorf("short lines: %q", got)
	}
}

// checkCuts checks that a part of a text is shown as it is in the whole text, and that less is shown, of any
// content, where a text was cut off.
func checkCuts(t *testing.T, m *mask.Masker, text string, n int) {
	t.Helper()
	whole := string(m.MaskText([]byte(text)))
	if got := string(m.MaskStart([]byte(text), n, false)); !strings.HasPrefix(whole, got) {
		t.Errorf("the first %d bytes of %q became %q, all became %q", n, text, got, whole)
	}
	if got := string(m.MaskEnd([]byte(text), n, false)); !strings.HasSuffix(whole, got) {
		t.Errorf("the last %d bytes of %q became %q, all became %q", n, text, got, whole)
	}
	if got := string(m.MaskStart([]byte(text[:n]), n, true)); !strings.HasPrefix(whole, got) {
		t.Errorf("%q, cut off, became %q, all became %q", text[:n], got, whole)
	}
	if got := string(m.MaskEnd([]byte(text[n:]), len(text), true)); !strings.HasSuffix(whole, got) {
		t.Errorf("%q, cut off, became %q, all became %q", text[n:], got, whole)
	}
}

// TestCutEncodings: a secret across a cut is shown as little as a whole one, in each encoding and at each place.
func TestCutEncodings(t *testing.T) {
	const secret = `X7$k"9/Z+4&v<20>`
	m := masker(secret)
	filler := strings.Repeat("~", m.Margin()+2)
	for name, encode := range texts {
		for _, escape := range []string{"as it is", "JSON"} {
			form := escapes[escape](encode(secret))
			if len(form) > m.Margin() {
				t.Errorf("%s in %s takes %d bytes", name, escape, len(form))
				continue
			}
			text := filler + form + filler
			for at := range len(form) + 4 {
				checkCuts(t, m, text, len(filler)-2+at)
				checkCuts(t, m, text, at)                       // the end of the form is at the start of the margin
				checkCuts(t, m, text, len(text)-len(form)-3+at) // its start is at the end of the margin
			}
		}
	}
}

// placesToCut are the places near the ends of a text, and near where the margin of one reaches them.
func placesToCut(size, margin int) (list []int) {
	for n := range 25 {
		for _, at := range []int{n, size - n, margin + n, size - margin - n} {
			if at >= 0 && at <= size {
				list = append(list, at)
			}
		}
	}
	return list
}

// TestPartsOfSecretsAreOrdinaryText: whether a guess of a part of a secret is right does not show, wherever a text ends
// or is cut off.
func TestPartsOfSecretsAreOrdinaryText(t *testing.T) {
	const secret = "X7kq9ZpW4vT20"
	m := masker(secret, "first line of a key\nsecond line of a key")
	fill := strings.Repeat("~", m.Margin()+20)
	for k := 1; k < len(secret); k++ {
		for name, pair := range map[string][2]string{
			"start": {secret[:k], secret[:k-1] + "!"}, "end": {secret[k:], "!" + secret[k+1:]},
			"base64": {std(secret)[:k], std(secret)[:k-1] + "!"},
		} {
			for _, texts := range [][2]string{pair, {fill + pair[0], fill + pair[1]}, {pair[0] + fill, pair[1] + fill}} {
				right, wrong := []byte(texts[0]), []byte(texts[1])
				for _, n := range placesToCut(len(right), m.Margin()) {
					for _, cut := range []bool{false, true} {
						a, b := m.MaskStart(right, n, cut), m.MaskStart(wrong, n, cut)
						c, d := m.MaskEnd(right, n, cut), m.MaskEnd(wrong, n, cut)
						if len(a) != len(b) || len(c) != len(d) {
							t.Fatalf("%s: a right guess of %d characters became %q and %q, a wrong one %q and %q", name, k, a,
								c, b, d)
						}
					}
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
		got := string(masker(long).MaskText([]byte(text)))
		if strings.Contains(got, long) || strings.Contains(got, "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh") {
			t.Errorf("%s: %d bytes are left", name, len(got))
		}
	}
}

// overshoot is how many steps the last place that is looked at may take beyond the bound.
const overshoot = 1 << 14

// repeated is a text of about 80 KiB.
func repeated(piece string) []byte { return []byte(strings.Repeat(piece, 80<<10/len(piece))) }

// TestStepsAreCounted: texts that can be read in many ways exhaust the bound, and are
// masked whole.
func TestStepsAreCounted(t *testing.T) {
	m := masker("s3cr-t/+one two5")
	for _, piece := range []string{`''\`, `'\''`, `\'`, `'`, `"`, `\`} {
		text := repeated(piece)
		if n := m.Readings(text); n <= mask.MaxSteps || n > mask.MaxSteps+overshoot {
			t.Errorf("%q took %d steps, want about %d", piece, n, mask.MaxSteps)
		}
		if got := string(m.MaskText(text)); got != mask.Mark {
			t.Errorf("%q: %d bytes are left", piece, len(got))
		}
	}
}

// TestReadingsDoNotDependOnTheSecret: a text near the bound is not masked whole because it has a part of the secret.
func TestReadingsDoNotDependOnTheSecret(t *testing.T) {
	const secret = "k3y-0x/+one two5"
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.StringMatching(`[\\%&=+'"uUx#{};0257cn\n]{1,6}`).Draw(t, "piece")
		guess := rapid.SampledFrom([]string{"k", "k3", "k3y-0x", "6b33", "6B33792D", "azN5", "M3kt"}).Draw(t, "guess")
		text := []byte(strings.Repeat(piece+guess, 100))
		if right, wrong := masker(secret).Readings(text), masker("QQQQQQQQQQQQ").Readings(text); right != wrong {
			t.Fatalf("%q: %d readings for one secret, %d for another one", text, right, wrong)
		}
	})
}

// TestWholeMasksDoNotDependOnTheSecret: whether a text without a secret is masked as a whole does not show how much of a
// guess in it is right. The text is as long as it may be before it is masked as a whole, if it ever is, also because of
// another secret, and has characters with which forms of secrets begin, between separators.
func TestWholeMasksDoNotDependOnTheSecret(t *testing.T) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) string {
		text := make([]byte, n)
		for i := range text {
			text[i] = letters[random.IntN(len(letters))]
		}
		return string(text)
	}
	secret, long := "tk_"+draw(16), draw(4<<10)
	m := masker(secret, long)
	isWhole := func(guess, fill string, n int) bool {
		got := string(m.MaskText([]byte(guess + strings.Repeat("+", 1000) + ":" + string(repeated(fill)[:n]))))
		if got != mask.Mark && strings.Contains(got, mask.Mark) {
			t.Fatalf("%q: a part of a secret is masked: %.100q", guess, got)
		}
		return got == mask.Mark
	}
	const most = 78 << 10
	guesses := []string{"x7", fmt.Sprintf("x%x", secret)[:7], std(secret)[:5], secret[:10], std(long)[:1000]}
	for _, fill := range []string{std(secret)[:1], std("." + secret)[2:3], std(".." + secret)[3:4], "t", "7", long[:1],
		std(long)[:1], std("." + long)[2:3], `''\`} {
		fill += strings.Repeat("+", 30)
		least := sort.Search(most, func(n int) bool { return isWhole(guesses[0], fill, n) })
		for _, guess := range guesses {
			if least > 0 && isWhole(guess, fill, least-1) || least < most && !isWhole(guess, fill, least) {
				t.Errorf("%.10q before %d bytes of %.3q shows by its length what is right", guess, least, fill)
			}
		}
	}
}

// TestSecretsThatRepeatThemselves are masked, if with all of the text.
func TestSecretsThatRepeatThemselves(t *testing.T) {
	for _, n := range []int{mask.MaxMatchesOfPattern - 1, mask.MaxMatchesOfPattern, mask.MaxMatchesOfPattern + 1, 1000} {
		secret := strings.Repeat("ab", n)
		got := string(masker(secret).MaskText([]byte("begin " + secret + " end")))
		if got != mask.Mark && got != "begin "+mask.Mark+" end" {
			t.Errorf("%d times: %q", n, got)
		}
	}
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
				if got := m.MaskText([]byte(before + string(repeated(piece)))); len(got) < 70<<10 {
					t.Errorf("%s secret: of %q behind %q, %d bytes are left, %d steps", name, piece, before, len(got),
						m.Readings([]byte(before+string(repeated(piece)))))
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
		got := string(m.MaskText([]byte(text)))
		// What is around a mark may make the secret anew: a mark has to be in it then.
		for _, part := range strings.Split(got, mask.Mark) {
			if strings.Contains(part, secret) {
				t.Fatalf("%q in %q became %q", secret, text, got)
			}
		}
		if len(text) <= m.Margin() { // a secret with very many line breaks in it may take more
			checkCuts(t, m, text, 7*len(secret)%(len(text)+1))
		}
	})
}

// BenchmarkMask masks usual answers, and texts that are made to take long: of the characters with which forms of the
// secret begin, with separators.
func BenchmarkMask(b *testing.B) {
	m := masker("ghp_16C7e42F292c6912E7710c838347Ae178B4a")
	for name, piece := range map[string]string{
		"answer": `{"id":"16C7e42F","ok":true,"note":"nothing \"to\" see\/here"}`,
		"plus":   "Z" + strings.Repeat("+", 30), "space": "Z" + strings.Repeat(" ", 30), "escapes": `6Zg\\n\n+%20`, "starts": "6Zg",
	} {
		text := repeated(piece)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				m.MaskText(text)
			}
		})
	}
}
