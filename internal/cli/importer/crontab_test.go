package importer_test

import (
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/importer"
)

// TestUserColumnByText: what a crontab says tells whether its entries name a user.
func TestUserColumnByText(t *testing.T) {
	const has, none, unclear = importer.HasUserColumn, importer.NoUserColumn, importer.UnclearUserColumn
	for text, want := range map[string]importer.UserColumn{
		"":               none,
		"* * * * * true": none,
		"17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly": has,
		"0 0 * * * root su -c x":                                                  has,
		"@daily www-data /opt/x":                                                  has,
		"5 4 * * * deploy cd /srv && ./run.sh":                                    has,
		"# m h dom mon dow user  command\n5 4 * * * app /x":                       has,
		"#minute hour mday month wday who command\n@daily a b":                    has,
		"# *  *  *  *  * user-name  command to be executed\n5 4 * * * app backup": has,
		"# these files also have username fields,\n5 4 * * * app /x":              has,
		"0 1 * * * root /a\n0 2 * * * app /b":                                     has,
		"# m h  dom mon dow   command\n5 4 * * * sweep /srv":                      none,
		"0 1 * * * php /a.php\n0 2 * * * sweep /srv":                              none,
		"0 1 * * * /usr/bin/root x":                                               none,
		"0 1 * * * cd /srv && root x":                                             none,
		"0 1 * * * backup.sh /srv":                                                none,
		"0 1 * * * rsnapshot hourly":                                              none,
		"0 1 * * * A=1 /x":                                                        none,
		"0 1 * * * reboot":                                                        none,
		"0 1 * * * app /opt/app/tidy":                                             unclear,
		"A=1\n\n0 1 * * * app A=2 /opt/x":                                         unclear,
		"0 1 * * * root /a\n0 2 * * * php /b":                                     unclear,
		"0 1 * * * app python3 x.py\n0 2 * * * app ./x":                           unclear,
	} {
		column, line, word := importer.DetectUserColumn([]byte(text))
		if column != want {
			t.Errorf("%q: %d, want %d", text, column, want)
		}
		if (line > 0) != (column == unclear) || (word != "") != (column == unclear) {
			t.Errorf("%q: line %d, word %q", text, line, word)
		}
	}
}

// TestCommandsKeepTheirMeaning: what a worker does otherwise than cron is translated, or
// noted, or the job is commented out.
func TestCommandsKeepTheirMeaning(t *testing.T) {
	for _, c := range []struct {
		text    string
		payload string // of the job; empty: it is commented out, or it was skipped
		notes   []string
	}{
		{"PATH=/opt/it's:/bin\n0 0 * * * a | b", `{"argv":["/bin/sh","-c","export PATH='/opt/it'\\''s:/bin'\na | b"]}`, []string{"runs in a shell"}},
		{"PATH=/opt:/bin\nSHELL=/usr/bin/fish\n0 0 * * * a", `{"argv":["/usr/bin/fish","-c","a"]}`, []string{"PATH: left out"}},
		{"HOME=/srv\n0 0 * * * ./run ~/x", `{"argv":["/bin/sh","-c","export HOME='/srv'\ncd \"$HOME\" || exit\n./run ~/x"]}`, []string{"runs in a shell"}},
		{"HOME=/srv\n0 0 * * * /bin/a", `{"argv":["/bin/a"]}`, []string{"starts the command in HOME", "HOME: left out"}},
		{"LD_LIBRARY_PATH=/x\nIFS=:\n0 0 * * * a", `{"argv":["/bin/sh","-c","export LD_LIBRARY_PATH='/x'\na"]}`, []string{"IFS: left out"}},
		{"'a b'=1\nA=2\n0 0 * * * /bin/a", `{"argv":["/bin/a"],"env":{"A":"2"}}`, []string{"a b: left out: the name", "--exec-env A"}},
		{"SHELL=/bin/bash\nBASH_ENV=/e\n0 0 * * * a b", `{"argv":["/bin/bash","-c","export BASH_ENV='/e'\n. \"$BASH_ENV\"\na b"]}`, []string{"runs in a shell"}},
		{"BASH_ENV=/e\n0 0 * * * a b", `{"argv":["/bin/sh","-c","export BASH_ENV='/e'\na b"]}`, []string{"runs in a shell"}},
		{"SHELL=bash\n0 0 * * * a b", `{"argv":["/bin/bash","-c","a b"]}`, []string{"taken for /bin/bash"}},
		{"SHELL=fish\n0 0 * * * a b", "", []string{"no clean absolute path", "commented out"}},
		{"0 4 * * * ~/bin/x", `{"argv":["/bin/sh","-c","~/bin/x"]}`, []string{"HOME is the worker's"}},
		{"0 4 * * * cp ${HOME}/a /b", `{"argv":["/bin/sh","-c","cp ${HOME}/a /b"]}`, []string{"HOME is the worker's"}},
		{"0 4 * * * echo $USER $LOGNAME $USER", `{"argv":["/bin/sh","-c","echo $USER $LOGNAME $USER"]}`, []string{"USER, LOGNAME: cron sets"}},
		{"USER=x\n0 4 * * * echo $USER", `{"argv":["/bin/sh","-c","echo $USER"],"env":{"USER":"x"}}`, []string{"--exec-env USER"}},
		{"0 4 * * * bin/x", `{"argv":["/bin/sh","-c","bin/x"]}`, []string{"user's directory"}},
		{"0 4 * * * /bin/a >> logs/x", `{"argv":["/bin/sh","-c","/bin/a >> logs/x"]}`, []string{"user's directory"}},
		{"* * * * * /usr/bin/sleep 300 &", `{"argv":["/usr/bin/sleep","300"]}`, []string{"& at the end is left out"}},
		{"* * * * * nohup a >/dev/null 2>&1 &", `{"argv":["/bin/sh","-c","nohup a >/dev/null 2>&1"]}`, []string{"& at the end is left out"}},
		{"* * * * * a & b", `{"argv":["/bin/sh","-c","a & b"]}`, []string{"in the background is ended"}},
		{"* * * * * (a &)", `{"argv":["/bin/sh","-c","(a &)"]}`, []string{"in the background is ended"}},
		{"* * * * * setsid a", `{"argv":["/bin/sh","-c","setsid a"]}`, []string{"in the background is ended"}},
		{"* * * * * screen -dmS x a", `{"argv":["/bin/sh","-c","screen -dmS x a"]}`, []string{"in the background is ended"}},
		{"* * * * * -ns prog", `{"argv":["/bin/sh","-c","prog"]}`, []string{"runs in a shell"}},
		{"* * * * * -n -q /bin/a", `{"argv":["/bin/a"]}`, nil},
		{"* * * * * -x prog", "", []string{"no option of cron"}},
		{"* * * * * -n", "", []string{"no option of cron"}},
		{"* * * * * tar c \"$(date +%F)\"", "", []string{"in the middle of a quotation"}},
		{"* * * * * tar c `date +%F`", "", []string{"in the middle of a quotation"}},
		{"* * * * * date +%F", `{"argv":["/bin/sh","-c","date +"],"stdin":"F\n"}`, []string{"what follows is its input"}},
		{"* * * * * echo ${secret:x}", "", []string{"workers refuse this command"}},
		{"*/5 * * * * * /bin/a", "", []string{"sixth field"}},
		{"*/5 * * * * {{ command }}", "", []string{"placeholder"}},
		{"0 1 * * * bash -lc 'cd ~/a'", `{"argv":["/bin/sh","-c","bash -lc 'cd ~/a'"]}`, []string{"HOME is the worker's"}},
		{"0 1 * * * php app/console x", `{"argv":["/bin/sh","-c","php app/console x"]}`, []string{"user's directory"}},
		{"0 1 * * * $(pwd)/x", `{"argv":["/bin/sh","-c","$(pwd)/x"]}`, []string{"user's directory"}},
		{"* * * * * a \\", `{"argv":["/bin/sh","-c","a \\"]}`, []string{"go on below"}},
		{"0 0 * * * root su -c x", `{"argv":["/bin/sh","-c","root su -c x"]}`, []string{"looks like a user"}},
		{"\ufeff0 0 * * * /bin/a", `{"argv":["/bin/a"]}`, nil},
	} {
		text, jobs := show(t, readCrontab(t, "f", []byte(c.text), options(false)))
		got := ""
		if len(jobs) == 1 {
			got = strings.NewReplacer(`\u0026`, "&", `\u003e`, ">").Replace(string(jobs[0].Job.GetPayload()))
		}
		if got != c.payload {
			t.Errorf("%q: %s, want %s\n%s", c.text, got, c.payload, text)
		}
		for _, note := range c.notes {
			if !strings.Contains(text, note) {
				t.Errorf("%q: no %q in\n%s", c.text, note, text)
			}
		}
		if c.notes == nil && strings.Contains(text, "NOTE") {
			t.Errorf("%q:\n%s", c.text, text)
		}
	}
}

// TestHarmlessCommandsHaveNoNote: what looks like a matter of the background or of the
// home directory, and is none.
func TestHarmlessCommandsHaveNoNote(t *testing.T) {
	for _, command := range []string{
		"a && b", "a >/x 2>&1", "a &> /x", "a >& /x", "echo 'x & y' \"z & ~/w $1\" \\& \\~", "a # & ~/b", "cd /srv && ./a && bin/b", "a & wait", "wget https://e.example/a/b",
		"sed 's/a/b/' /x", "docker run shop/jobs", "sleep 3 && cd /a && ./b", "awk '{print $USER}' /x", "/opt/a~/b",
	} {
		text, jobs := show(t, readCrontab(t, "f", []byte("0 0 * * * "+command+"\n"), options(false)))
		if len(jobs) != 1 || strings.Count(text, "NOTE") > 1 || strings.Contains(text, "NOTE") && !strings.Contains(text, "NOTE: runs in a shell") {
			t.Errorf("%q:\n%s", command, text)
		}
	}
}

// TestOneRunAtATime: -s of OpenBSD.
func TestOneRunAtATime(t *testing.T) {
	text, _ := show(t, readCrontab(t, "f", []byte("* * * * * -ns /bin/a\n"), options(false)))
	if !strings.Contains(text, "overlap_policy: skip") {
		t.Errorf("%s", text)
	}
}

// TestNoUserColumn: a command in the place of the user.
func TestNoUserColumn(t *testing.T) {
	text, jobs := show(t, readCrontab(t, "f", []byte("* * * * * cd /srv && ./a\n"), options(true)))
	if len(jobs) != 0 || !strings.Contains(text, "is no user") {
		t.Errorf("%s", text)
	}
}
