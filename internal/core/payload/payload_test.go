package payload

import (
	"fmt"
	"strings"
	"testing"
)

// TestCheck: each fault has the path of its field; CANARY is never quoted.
func TestCheck(t *testing.T) {
	for _, test := range []struct{ handler, text, want string }{
		{"own", "nonsense", ""},
		{"HTTP", "nonsense", ""},
		{"http", `{"url":"https://example.com"}`, ""},
		{"http", `{"URL":"https://example.com","Method":"POST","body":null,"headers":{"Authorization":"Bearer ${secret:a.b}"}}`, ""},
		{"http", `{"url":"https://example.com:8443/?q=a b","expected_status":["200-299","404"],"timeout":"5s","max_body_bytes":0,"follow_redirects":"as_get"}`, ""},
		{"http", ``, `: is empty, want an object such as {"url": "https://example.com/hook"}`},
		{"http", ` `, `: is empty, want`},
		{"http", `null`, `: is null, want an object`},
		{"http", `"https://CANARY"`, `: is text, want an object such as {"url"`},
		{"http", `[]`, `: is a list, want an object`},
		{"http", `{"url":`, `: is no JSON: unexpected EOF`},
		{"http", `{"url":"https://h"} {}`, `: is more than one JSON value`},
		{"http", `{}`, `url: is missing`},
		{"http", `{"url":"CANARY.com"}`, `url: has no scheme, want http:// or https:// before the host`},
		{"http", `{"url":"ftp://CANARY"}`, `url: has scheme "ftp", want http or https`},
		{"http", `{"url":"https:CANARY"}`, `url: has no host`},
		{"http", `{"url":"http://u:CANARY@[::1"}`, `url: is malformed`},
		{"http", `{"url":"http://h:65536"}`, `url: has port 65536, want 1 to 65535`},
		{"http", `{"url":"http://h:0"}`, `url: has port 0`},
		{"http", `{"url":5}`, `url: is a number, want text: quote it`},
		{"http", `{"url":"https://h","URL":"https://i"}`, `url: occurs twice, in different letter case`},
		{"http", `{"url":"https://h/${secret:a}"}`, `url: has a reference to a secret`},
		{"http", `{"url":"https://h","methd":"PUT"}`, `methd: is unknown; did you mean method?`},
		{"http", `{"url":"https://h","a b":1}`, `["a b"]: is unknown`},
		{"http", `{"url":"https://h","method":"post"}`, `method: is "post", want one of GET,`},
		{"http", `{"url":"https://h","expected_status":["200","2xx"]}`, `expected_status[1]: is "2xx", which is neither a status nor a range`},
		{"http", `{"url":"https://h","expected_status":[200]}`, `expected_status[0]: is a number, want text: quote it`},
		{"http", `{"url":"https://h","expected_status":"200"}`, `expected_status: is text, want a list of texts`},
		{"http", `{"url":"https://h","timeout":"5"}`, `timeout: is "5", want a positive duration such as "5s"`},
		{"http", `{"url":"https://h","timeout":"9999999h"}`, `timeout: is "9999999h", want`},
		{"http", `{"url":"https://h","max_body_bytes":1048577}`, `max_body_bytes: is 1048577, want 0 to 1048576`},
		{"http", `{"url":"https://h","max_body_bytes":1.5}`, `max_body_bytes: is 1.5, want a whole number`},
		{"http", `{"url":"https://h","body":"CANARY","body_base64":"aGk="}`, `body: and body_base64 exclude each other`},
		{"http", `{"url":"https://h","body_base64":"CANARY?"}`, `body_base64: is not base64`},
		{"http", `{"url":"https://h","follow_redirects":"all"}`, `follow_redirects: is "all", want one of keep_method as_get none`},
		{"http", `{"url":"https://h","headers":{"X A":"CANARY"}}`, `headers["X A"]: is not the name of a header`},
		{"http", `{"url":"https://h","headers":{"X-A":"CANARY\n"}}`, `headers["X-A"]: has a line break`},
		{"http", `{"url":"https://h","headers":{"X-A":5}}`, `headers["X-A"]: is a number, want text: quote it`},
		{"http", `{"url":"https://h","headers":{"fermata-run":""}}`, `headers["fermata-run"]: cannot be set`},
		{"http", `{"url":"https://h","headers":{"a":"1","A":"2"}}`, `headers["a"]: occurs twice`},
		{"http", `{"url":"https://h","headers":["a"]}`, `headers: is a list, want an object of texts`},
		{"http", `{"url":"https://h","headers":{"A":"${secret:CANARY"}}`, `headers["A"]: has a reference to a secret that does not end`},
		{"http", `{"url":"https://h","headers":{"A":"${secret:CANARY}"}}`, `headers["A"]: refers to a secret by what is not the name of one`},
		{"http", `{"url":"https://h","headers":{"A":"` + strings.Repeat("${secret:a}", 17) + `"}}`, `headers["A"]: has more than 16 references`},
		{"http", `{"url":"https://h","headers":{"A":"${secret:a}","Host":"i"}}`, `headers["Host"]: cannot be set beside a reference`},
		{"http", `{"url":"h","expected_status":["x"],"timeout":"x"}`, "url: has no scheme, want http:// or https:// before the host|expected_status[0]: is \"x\"|timeout: is \"x\""},
		{"exec", `{"argv":["/bin/ls","-l"],"env":{"REGION":"eu","KEY":"${secret:key}"},"dir":"/var","stdin":"x"}`, ""},
		{"exec", ``, `: is empty, want an object such as {"argv": ["/usr/bin/printf", "hello"]}`},
		{"exec", `"/bin/echo hi"`, `: is text, want an object such as {"argv": `},
		{"exec", `{}`, `argv: is empty`},
		{"exec", `{"argv":[]}`, `argv: is empty`},
		{"exec", `{"argv":"/bin/ls -l"}`, `argv: is text, want a list of texts such as ["/usr/bin/printf", "hello"]`},
		{"exec", `{"argv":["ls"]}`, `argv[0]: is not a clean absolute path`},
		{"exec", `{"argv":["/bin/../bin/ls"]}`, `argv[0]: is not a clean absolute path`},
		{"exec", `{"argv":[""]}`, `argv[0]: is empty, want the path of a program`},
		{"exec", `{"argv":["/bin/sleep",5]}`, `argv[1]: is a number, want text: quote it`},
		{"exec", `{"argv":["/bin/ls","\u0000"]}`, `argv[1]: holds a NUL byte`},
		{"exec", `{"argv":["/bin/ls","${secret:CANARY}"]}`, `argv[1]: has a reference to a secret`},
		{"exec", `{"argv":["/bin/ls"],"env":{"PORT":8080}}`, `env["PORT"]: is a number, want text: quote it`},
		{"exec", `{"argv":["/bin/ls"],"env":{"ON":true}}`, `env["ON"]: is true, want text: quote it`},
		{"exec", `{"argv":["/bin/ls"],"env":{"A":["CANARY"]}}`, `env["A"]: is a list, want text`},
		{"exec", `{"argv":["/bin/ls"],"env":{"A B":"CANARY"}}`, `env["A B"]: is not the name of a variable`},
		{"exec", `{"argv":["/bin/ls"],"env":{"path":"CANARY","FERMATA_RUN":"x"}}`, `env["FERMATA_RUN"]: cannot be set|env["path"]: cannot be set`},
		{"exec", `{"argv":["/bin/ls"],"env":{"KEY":"${secret:.x}"}}`, `env["KEY"]: refers to a secret by what is not`},
		{"exec", `{"argv":["/bin/ls"],"stdin":"${secret:"}`, `stdin: has a reference to a secret that does not end`},
		{"exec", `{"argv":["/bin/ls"],"dir":"tmp"}`, `dir: is not an absolute path`},
		{"exec", `{"argv":["/bin/ls"],"shell":true}`, `shell: is unknown`},
		{"exec", `{"argv":["/bin/ls"],"environ":{}}`, `environ: is unknown`},
		{"exec", `{"argv":["/bin/ls"],"envs":{}}`, `envs: is unknown; did you mean env?`},
	} {
		faults := Validate(test.handler, []byte(test.text))
		want := strings.Split(test.want, "|")
		if test.want == "" {
			want = nil
		}
		good := len(faults) == len(want)
		for i := 0; good && i < len(want); i++ {
			said := faults[i].Field + ": " + faults[i].Text
			good = strings.HasPrefix(said, want[i]) && !strings.Contains(said, "CANARY")
		}
		if !good {
			t.Errorf("%s %.200s: got %q, want %q", test.handler, test.text, faults, want)
		}
	}
}

// TestNumberOfFaultsIsBounded, whatever a payload holds.
func TestNumberOfFaultsIsBounded(t *testing.T) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, `,"%s%d":1`, strings.Repeat("x", 100), i)
	}
	faults := Validate("http", []byte(`{"url":""`+text.String()+`}`))
	if len(faults) != maxFaults || len(faults.Error()) > maxFaults*200 {
		t.Errorf("%d faults, %d bytes", len(faults), len(faults.Error()))
	}
}

// TestChecker leaves alone what it is not for.
func TestChecker(t *testing.T) {
	for _, test := range []struct {
		handlers []string
		http     bool
	}{{Handlers(), true}, {[]string{"http"}, true}, {[]string{"exec"}, false}, {nil, false}} {
		if got := ValidatorFor(test.handlers)("http", nil) != nil; got != test.http {
			t.Errorf("%v: http is checked: %v", test.handlers, got)
		}
	}
}

// FuzzCheck: what does not parse is refused, and nothing makes it panic.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"url":"https://h","headers":{"A":"${secret:a}"}}`, `{"argv":["/bin/ls"],"env":{"A":"b"}}`, `{"url":1}`, `[]`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := ParseHTTP(text); err != nil && len(Validate("http", text)) == 0 {
			t.Error("http:", err)
		}
		if _, err := ParseExec(text); err != nil && len(Validate("exec", text)) == 0 {
			t.Error("exec:", err)
		}
	})
}
