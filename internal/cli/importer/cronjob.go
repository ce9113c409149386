package importer

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/lib/yamldoc"
)

// CronJobOptions say how CronJobs are read.
type CronJobOptions struct {
	// Zone is that of the controller, for CronJobs that name none.
	Zone string
	// Queue of the jobs. Empty: the default one.
	Queue string
	// Prefix of ids.
	Prefix string
}

// longest is the longest time that one attempt may take.
const longest = 24 * time.Hour

// CronJobs makes a job of each CronJob in a file of Kubernetes manifests; other kinds
// are named and left out.
func CronJobs(file string, text []byte, o CronJobOptions) []Entry {
	r := manifests{file: file, o: o, namespaces: map[string]bool{}, secrets: map[string]string{}}
	in := yamldoc.NewReader(text, &yamldoc.Budget{})
	for {
		document, err := in.Next()
		if yamldoc.Ended(err) {
			break
		}
		if err != nil {
			r.drop(1, "", "not YAML that can be read here: "+strings.TrimPrefix(err.Error(), "yaml: ")+templateHint(string(text)))
			break
		}
		var value any
		if err := document.Decode(&value); err != nil {
			r.drop(document.Line, "", "not YAML as it is wanted here: "+err.Error()+templateHint(string(text)))
			continue
		}
		r.object(value, content(document), "", 0)
	}
	if len(r.namespaces) > 1 {
		r.qualify()
	}
	unique(r.entries)
	return r.entries
}

func content(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		return n.Content[0]
	}
	return n
}

// manifests is a file that is being read.
type manifests struct {
	file       string
	o          CronJobOptions
	entries    []Entry
	namespaces map[string]bool
	of         []string          // the namespace of each entry
	secrets    map[string]string // of workers, by name: the Secret and the key that each is
}

// templateHint says what helps with a template that has not been rendered.
func templateHint(text string) string {
	if !strings.Contains(text, "{{") {
		return ""
	}
	return "; {{ begins an expression of a template: import what helm template prints"
}

func (r *manifests) add(e Entry, namespace string) {
	r.entries, r.of = append(r.entries, e), append(r.of, namespace)
}

func (r *manifests) drop(line int, what, text string) {
	line = max(1, line)
	r.add(Entry{Source: strings.TrimSpace(fmt.Sprintf("%s:%d: %s", r.file, line, what)), Notes: []Note{{r.file, line, text}}}, "")
}

// qualify puts the namespace into ids where there are several. A CronJob that names none,
// or none that can be, is in that which Kubernetes takes then.
func (r *manifests) qualify() {
	for i := range r.entries {
		if e := &r.entries[i]; e.fields != nil {
			e.id = r.o.Prefix + cmp.Or(dnsName(r.of[i]), "default") + "." + strings.TrimPrefix(e.id, r.o.Prefix)
		}
	}
}

// object reads a CronJob, or a list of objects. Items of a list may leave out what they are.
func (r *manifests) object(value any, node *yaml.Node, kindOfList string, depth int) {
	o, ok := value.(map[string]any)
	if !ok {
		if value != nil {
			r.drop(node.Line, "", "is no object of Kubernetes")
		}
		return
	}
	kind, _ := o["kind"].(string)
	kind = cmp.Or(kind, kindOfList)
	if items, ok := o["items"].([]any); ok && strings.HasSuffix(kind, "List") && depth < 4 {
		lines := below(node, "items")
		for i, item := range items {
			at := node
			if lines != nil && i < len(lines.Content) {
				at = lines.Content[i]
			}
			r.object(item, at, strings.TrimSuffix(kind, "List"), depth+1)
		}
		return
	}
	if kind == "" {
		r.drop(node.Line, "", "has no kind, so that it is no CronJob; it is left out")
		return
	}
	if kind != "CronJob" {
		r.drop(node.Line, kind, fmt.Sprintf("is a %q and no CronJob; it is left out", clip(kind, 64)))
		return
	}
	c := cronJob{r: r, node: node, all: tree{o}, unknown: map[string]bool{}}
	c.read()
}

// below is the value of a key, nil if there is none.
func below(node *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		var next *yaml.Node
		for node != nil && node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		for i := 0; node != nil && node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				next = node.Content[i+1]
			}
		}
		if next == nil {
			return nil
		}
		node = next
	}
	return node
}

// cronJob is one CronJob that is being read.
type cronJob struct {
	r     *manifests
	node  *yaml.Node
	all   tree
	notes []Note
	out   *mapping
	// manual: it has no schedule, as its own never comes.
	manual bool
	// off says why no worker could run it.
	off string
	// unknown are variables whose values are not in the manifest.
	unknown map[string]bool
}

// note tells of something at a path, or at the object.
func (c *cronJob) note(text string, path ...string) {
	line := c.node.Line
	for i := range path {
		if n := below(c.node, path[:i+1]...); n != nil {
			line = n.Line
		}
	}
	c.notes = append(c.notes, Note{c.r.file, max(1, line), text})
}

func (c *cronJob) read() {
	name, namespace := c.name(), c.all.text("metadata", "namespace")
	e := Entry{Source: fmt.Sprintf("%s:%d: CronJob %s", c.r.file, max(1, c.node.Line), strings.TrimPrefix(namespace+"/"+name, "/"))}
	c.out = newMapping()
	id := dnsName(name)
	if id == "" {
		c.note("has no name that an id can be made of; nothing was made of it"+templateHint(name), "metadata", "name")
	} else if !c.schedule() {
		id = ""
	}
	if id != "" {
		e.id = c.r.o.Prefix + id
		head := newMapping().set("id", e.id)
		if c.r.o.Queue != "" {
			head.set("queue", c.r.o.Queue)
		}
		rule := c.out
		c.out = head
		c.labels()
		c.program()
		c.out.node.Content = append(c.out.node.Content, rule.node.Content...)
		c.policies()
		c.leftOut()
		c.mistyped()
		e.fields = c.out
		if c.off != "" {
			e.turnOff(c.off, func(text string) { c.note(text, containersPath...) })
		}
		if namespace != "" {
			c.r.namespaces[namespace] = true
		}
	}
	e.Notes = c.notes
	c.r.add(e, namespace)
}

// name is that of the object, or what one begins with that Kubernetes chooses.
func (c *cronJob) name() string {
	if group, _, _ := strings.Cut(c.all.text("apiVersion"), "/"); group != "" && group != "batch" {
		c.note(fmt.Sprintf("apiVersion %q is not that of Kubernetes; it is read as if it were", clip(c.all.text("apiVersion"), 64)), "apiVersion")
	}
	name := c.all.text("metadata", "name")
	if begin := strings.TrimRight(c.all.text("metadata", "generateName"), "-."); name == "" && begin != "" {
		c.note("generateName: Kubernetes adds characters by chance; here the id has none, so that applying again makes no second job", "metadata", "generateName")
		return begin
	}
	return name
}

func dnsName(name string) string {
	if len(name) > 100 || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}) || strings.Trim(name, "-.") == "" {
		return ""
	}
	return strings.TrimLeft(name, "-.")
}

// schedule reads when the CronJob is due. It is false for what it does not understand.
func (c *cronJob) schedule() bool {
	expression, zone := c.expression()
	switch {
	case expression == "":
		c.note("spec.schedule is missing; nothing was made of it", "spec", "schedule")
		return false
	case strings.HasPrefix(expression, "@every"):
		return c.interval(expression)
	}
	expressions := eitherDay(expression)
	spec := schedule.Spec{Kind: schedule.KindCron, Cron: expressions, TimeZone: zone}
	_, err := schedule.Compile(spec, time.Unix(1_700_000_000, 0), 1)
	if err != nil && len(expressions) == 1 && strings.Contains(err.Error(), noInstant) {
		c.manual = true
		c.note(fmt.Sprintf("schedule %q never comes: the job has none, and runs by fermata jobs run", clip(expression, 80)), "spec", "schedule")
		return true
	}
	if err != nil || len(expression) > 256 {
		c.note(fmt.Sprintf("schedule %q in time zone %q: not understood: %v; nothing was made of it%s", clip(expression, 80), clip(zone, 80), err, templateHint(expression)), "spec", "schedule")
		return false
	}
	cron := newMapping().set("expressions", expressions).set("time_zone", zone)
	if zone != "UTC" && zone != "Etc/UTC" {
		// The controller goes by the clock on the wall: no run at a time that a change of the clock skips, two at one that comes twice.
		cron.set("dst_gap", "skip").set("dst_repeat", "both")
	}
	c.out.set("schedule", newMapping().set("cron", cron.flow()))
	return true
}

// expression is the schedule without a zone, and the zone.
func (c *cronJob) expression() (expression, zone string) {
	expression, zone = strings.TrimSpace(c.all.text("spec", "schedule")), c.all.text("spec", "timeZone")
	for _, prefix := range []string{"CRON_TZ=", "TZ="} { // taken by Kubernetes before 1.29
		if rest, ok := strings.CutPrefix(expression, prefix); ok {
			words, after := fields(rest, 1)
			if zone != "" && zone != words[0] {
				c.note(fmt.Sprintf("timeZone %q is left out: the schedule has a zone, and Kubernetes refuses both", clip(zone, 64)), "spec", "timeZone")
			}
			expression, zone = strings.TrimSpace(after), words[0]
		}
	}
	return expression, cmp.Or(zone, c.r.o.Zone)
}

// interval reads @every, of which Kubernetes takes whole seconds.
func (c *cronJob) interval(expression string) bool {
	d, err := time.ParseDuration(strings.TrimSpace(strings.TrimPrefix(expression, "@every")))
	if err != nil || d < 5*time.Second || d > 366*24*time.Hour {
		c.note(fmt.Sprintf("schedule %q: an interval is 5 s to a year; nothing was made of it", clip(expression, 80)), "spec", "schedule")
		return false
	}
	c.out.set("schedule", newMapping().set("interval", newMapping().set("every", d.Truncate(time.Second).String()).flow()))
	return true
}

// noInstant is what package schedule says of an expression such as that of February 31.
const noInstant = "no instant within"

// eitherDay makes expressions that mean here what one means to Kubernetes: there, of two
// day fields of which neither is a star, one has to match, and a star with a step is none.
// Here a field that begins with a star has to match.
func eitherDay(expression string) []string {
	words := strings.Fields(expression)
	if len(words) != 5 {
		return []string{expression}
	}
	day, weekday := words[2], untilSaturday(words[4])
	with := func(day, weekday string) string {
		return strings.Join([]string{words[0], words[1], day, words[3], weekday}, " ")
	}
	allDays, allWeekdays := isStar(day), isStar(weekday)
	switch {
	case allDays && allWeekdays:
		return []string{with("*", "*")}
	case allDays:
		return []string{with("*", weekday)}
	case allWeekdays:
		return []string{with(day, "*")}
	case day[0] == '*' || day[0] == '?' || weekday[0] == '*' || weekday[0] == '?':
		return []string{with(day, "*"), with("*", weekday)}
	}
	return []string{with(day, weekday)}
}

// weekdayWithStep is a day of the week that a step follows.
var weekdayWithStep = regexp.MustCompile(`^(?i:(sun|mon|tue|wed|thu|fri|sat)|[0-6])/(\d+)$`)

// untilSaturday ends a step at Saturday, as Kubernetes does: here it would go on to 7, which is Sunday.
func untilSaturday(weekdays string) string {
	items := strings.Split(weekdays, ",")
	for i, item := range items {
		if m := weekdayWithStep.FindStringSubmatch(item); m != nil {
			day, _, _ := strings.Cut(item, "/")
			if n := strings.Index("sun mon tue wed thu fri sat", strings.ToLower(day)); m[1] != "" {
				day = strconv.Itoa(n / 4)
			}
			items[i] = day + "-6/" + m[2]
		}
	}
	return strings.Join(items, ",")
}

// isStar reports whether a day field matches each day, as Kubernetes sees it.
func isStar(field string) bool {
	for part := range strings.SplitSeq(field, ",") {
		if part == "*" || part == "?" || part == "*/1" || part == "?/1" {
			return true
		}
	}
	return false
}

func (c *cronJob) labels() {
	given, _ := c.all.get("metadata", "labels").(map[string]any)
	labels := newMapping()
	for _, key := range slices.Sorted(maps.Keys(given)) {
		value, ok := given[key].(string)
		if !ok || len(key) > 128 || len(value) > 128 || len(labels.node.Content) >= 2*30 || printable(key+value) != key+value || key == "" {
			c.note("label "+clip(key, 80)+" is left out: up to 30 of text, 128 bytes each", "metadata", "labels", key)
			continue
		}
		labels.set(key, value)
	}
	if !labels.empty() {
		c.out.set("labels", labels)
	}
}
