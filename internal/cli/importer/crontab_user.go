package importer

import (
	"regexp"
	"strings"
)

// UserColumn is whether the entries of a crontab have a user column.
type UserColumn int

const (
	NoUserColumn UserColumn = iota
	HasUserColumn
	UnclearUserColumn
)

var (
	// Headers of Debian, Red Hat and FreeBSD, and the sentence above that of Debian.
	userColumnHeader = regexp.MustCompile(`(?i)^#.*\b(user(-?name)?|who)[ \t]+(command|cmd)\b|username fields?\b`)
	commandHeader    = regexp.MustCompile(`(?i)^#[ \t]*m[ \t]+h[ \t]+dom[ \t]+mon[ \t]+dow[ \t]+command\b`)
	userPattern      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*\$?$`)
)

// systemUsers are names of users that are not commands.
var systemUsers = setOf(`root nobody daemon bin sys www-data www wwwrun apache httpd postgres mysqld redis rabbitmq
	mongodb memcache gitlab-www munin nagios icinga zabbix ubuntu debian ec2-user centos fedora vagrant pi jenkins tomcat
	solr elasticsearch logstash smmsp amavis clamav debian-spamd debian-tor gnats irc list proxy uucp operator ntp
	asterisk prometheus grafana systemd-network messagebus _apt sshd postfix dovecot opendkim vmail nextcloud`)

// commonCommands are names of commands that are not users.
var commonCommands = setOf(`sh bash dash ash ksh zsh fish csh tcsh python python2 python3 perl ruby php node java go
	env sudo su nice ionice renice nohup time timeout flock lockf setsid chronic cronic systemd-cat logger taskset chrt
	chpst setlock run-one caffeinate cat cp mv rm ln ls mkdir rmdir touch chmod chown find xargs grep sed awk sort cut tr
	head tail tee wc diff tar gzip bzip2 xz zip unzip rsync scp ssh sftp curl wget nc ping dig date sleep echo printf
	true false seq df du free uptime ps pgrep pkill kill killall service systemctl journalctl shutdown reboot halt
	poweroff mount umount logrotate run-parts anacron make npm npx yarn pnpm composer pip docker docker-compose podman
	kubectl helm aws gcloud az rclone restic borg certbot acme.sh mysqldump pg_dump psql pg_dumpall mongodump redis-cli
	sqlite3 apt apt-get yum dnf apk pacman freebsd-update pkg newsyslog fstrim ntpdate hwclock updatedb mandb sendmail
	mailx notify-send screen tmux drush wp rake bundle rails pm2 ffmpeg convert`)

// shellBuiltins exist only in shells, so the word before one is not a command.
var shellBuiltins = setOf(`cd export source . if for while until case umask ulimit exec eval set unset trap { ( [[`)

// isCommand reports whether a word begins a command.
func isCommand(word string) bool {
	return commonCommands[word] || shellBuiltins[word] || word == "test" || word == "["
}

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// DetectUserColumn finds out from the text of a crontab whether its entries name a user. line and word are those
// of the first ambiguous entry.
func DetectUserColumn(text []byte) (column UserColumn, line int, word string) {
	var users, others, header bool
	for i, text := range strings.SplitN(string(text), "\n", maxCrontab+1) {
		if i == maxCrontab {
			break
		}
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "#") {
			if userColumnHeader.MatchString(text) {
				return HasUserColumn, 0, ""
			}
			header = header || commandHeader.MatchString(text)
			continue
		}
		command, ok := sixthField(text)
		if !ok {
			continue
		}
		switch detectUserColumn(command) {
		case HasUserColumn:
			users = true
		case NoUserColumn:
			others = true
		default:
			if line == 0 {
				line, word = i+1, clipText(firstWord(command), 40)
			}
			continue
		}
		if users && others && line == 0 {
			line, word = i+1, clipText(firstWord(command), 40)
		}
	}
	switch {
	case users && !others:
		return HasUserColumn, 0, ""
	case !users && (others || header || line == 0):
		return NoUserColumn, 0, ""
	}
	return UnclearUserColumn, line, word
}

// sixthField returns the text after the time of an entry.
func sixthField(line string) (string, bool) {
	if line == "" || assignmentPattern.MatchString(line) {
		return "", false
	}
	times := 5
	if strings.HasPrefix(line, "@") {
		times = 1
	}
	if strings.HasPrefix(strings.ToLower(line), "@every ") {
		times = 2
	}
	_, rest := splitFields(strings.TrimPrefix(line, "-"), times)
	return rest, rest != ""
}

func firstWord(s string) string {
	words, _ := splitFields(s, 1)
	return words[0]
}

// detectUserColumn classifies the first word of a command.
func detectUserColumn(command string) UserColumn {
	words, _ := splitFields(command, 2)
	if len(words) < 2 || words[1] == "" || !userPattern.MatchString(words[0]) || isCommand(words[0]) {
		return NoUserColumn
	}
	switch next := words[1]; {
	case systemUsers[words[0]], shellBuiltins[next], strings.HasPrefix(next, "("):
		return HasUserColumn
	case next[0] == '/', next[0] == '~', strings.HasPrefix(next, "./"), strings.Contains(next, "="), isCommand(next):
		return UnclearUserColumn
	}
	return NoUserColumn
}
