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

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/lib/yamldoc"
)

// CronJobOptions configure how CronJobs are read.
type CronJobOptions struct {
	// Zone is the controller's time zone, for CronJobs without one.
	Zone string
	// Queue of the jobs. Empty: the default one.
	Queue string
	// Prefix of ids.
	Prefix string
	// Budget is shared by the files of an import. Default: one of its own.
	Budget *Budget
}

// maxManifestBytes is the longest time that one attempt may take.
const maxManifestBytes = 24 * time.Hour

// CronJobs converts each CronJob in a file of Kubernetes manifests to a job. Other kinds are reported and left
// out. It fails if the budget is spent.
func CronJobs(file string, text []byte, o CronJobOptions) ([]Entry, error) {
	r := manifestReader{file: file, options: o, budget: cmp.Or(o.Budget, &Budget{}), namespaces: map[string]bool{},
		secrets: map[string]string{}}
	in := yamldoc.NewReader(text, &r.budget.documents)
	for r.budget.err == nil {
		document, err := in.Next()
		if yamldoc.Ended(err) {
			break
		}
		if err != nil {
			r.dropObject(1, "", "not YAML that can be read here: "+strings.TrimPrefix(err.Error(),
				"yaml: ")+templateHint(string(text)))
			break
		}
		var value any
		if err := document.Decode(&value); err != nil {
			r.dropObject(document.Line, "", "not the expected YAML: "+err.Error()+templateHint(string(text)))
			continue
		}
		r.readObject(value, unwrapDocument(document), "", 0)
	}
	if r.budget.err != nil {
		return nil, r.budget.err
	}
	if len(r.namespaces) > 1 {
		r.qualifyIDs()
	}
	makeIDsUnique(r.entries)
	return r.entries, nil
}

func unwrapDocument(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		return n.Content[0]
	}
	return n
}

// manifestReader is a file that is being read.
type manifestReader struct {
	file                string
	options             CronJobOptions
	budget              *Budget
	entries             []Entry
	namespaces          map[string]bool
	namespacesOfEntries []string          // the namespace of each entry
	secrets             map[string]string // of workers, by name: the Secret and the key that each is
}

// templateHint returns what to do with a template that has not been rendered.
func templateHint(text string) string {
	if !strings.Contains(text, "{{") {
		return ""
	}
	return "; {{ begins an expression of a template: import what helm template prints"
}

func (r *manifestReader) addEntry(e Entry, namespace string) {
	r.entries, r.namespacesOfEntries = append(r.entries, e), append(r.namespacesOfEntries, namespace)
}

func (r *manifestReader) dropObject(line int, what, text string) {
	line = max(1, line)
	if r.budget.spend(r.file, line, perValue+len(text)) {
		r.addEntry(Entry{Source: strings.TrimSpace(fmt.Sprintf("%s:%d: %s", r.file, line, what)),
			Notes: []Note{{r.file, line, text}}}, "")
	}
}

// qualifyIDs puts the namespace into ids where there are several. A CronJob that names none,
// or none that can be, is in that which Kubernetes takes then.
func (r *manifestReader) qualifyIDs() {
	for i := range r.entries {
		if e := &r.entries[i]; e.fields != nil {
			e.id = r.options.Prefix + cmp.Or(dnsName(r.namespacesOfEntries[i]),
				"default") + "." + strings.TrimPrefix(e.id, r.options.Prefix)
		}
	}
}

// readObject reads a CronJob, or a list of objects. Items of a list may omit their kind.
func (r *manifestReader) readObject(value any, node *yaml.Node, kindOfList string, depth int) {
	if r.budget.err != nil {
		return
	}
	o, ok := value.(map[string]any)
	if !ok {
		if value != nil {
			r.dropObject(node.Line, "", "is no object of Kubernetes")
		}
		return
	}
	kind, _ := o["kind"].(string)
	kind = cmp.Or(kind, kindOfList)
	if items, ok := o["items"].([]any); ok && strings.HasSuffix(kind, "List") && depth < 4 {
		lines := nodeAt(node, "items")
		for i, item := range items {
			at := node
			if lines != nil && i < len(lines.Content) {
				at = lines.Content[i]
			}
			r.readObject(item, at, strings.TrimSuffix(kind, "List"), depth+1)
		}
		return
	}
	if kind == "" {
		r.dropObject(node.Line, "", "has no kind, so that it is no CronJob; it is left out")
		return
	}
	if kind != "CronJob" {
		r.dropObject(node.Line, kind, fmt.Sprintf("is a %q and no CronJob; it is left out", clipText(kind, 64)))
		return
	}
	c := cronJob{reader: r, node: node, values: valueTree{o}, unknown: map[string]bool{}, room: maxPayload}
	c.readAll()
}

// nodeAt returns the value of a key, nil if there is none.
func nodeAt(node *yaml.Node, keys ...string) *yaml.Node {
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
	reader *manifestReader
	node   *yaml.Node
	values valueTree
	notes  []Note
	fields *yamlMapping
	// manual: the job has no schedule, because its expression never matches.
	manual bool
	// disabledReason is why no worker could run it.
	disabledReason string
	// unknown are variables whose values are not in the manifest.
	unknown map[string]bool
	// room is how many bytes values may still take by expansion. Below 0: they were too many, and some are missing.
	room int
}

// addNote adds a note at a path, or at the object.
func (c *cronJob) addNote(text string, path ...string) {
	line := c.node.Line
	for i := range path {
		if n := nodeAt(c.node, path[:i+1]...); n != nil {
			line = n.Line
		}
	}
	if c.reader.budget.spend(c.reader.file, max(1, line), perValue+len(text)) {
		c.notes = append(c.notes, Note{c.reader.file, max(1, line), text})
	}
}

func (c *cronJob) readAll() {
	name, namespace := c.jobID(), c.values.textAt("metadata", "namespace")
	e := Entry{Source: fmt.Sprintf("%s:%d: CronJob %s", c.reader.file, max(1, c.node.Line),
		strings.TrimPrefix(namespace+"/"+name, "/"))}
	c.fields = newMapping()
	id := dnsName(name)
	if id == "" {
		c.addNote("has no name to make an id of; it was skipped"+templateHint(name), "metadata",
			"name")
	} else if !c.readSchedule() {
		id = ""
	}
	if id != "" {
		c.readJob(&e, c.reader.options.Prefix+id)
		if namespace != "" {
			c.reader.namespaces[namespace] = true
		}
	}
	e.Notes = c.notes
	c.reader.addEntry(e, namespace)
}

// readJob reads all but the schedule, which has been read.
func (c *cronJob) readJob(e *Entry, id string) {
	rule := c.fields
	c.fields = newMapping().setField("id", id)
	if c.reader.options.Queue != "" {
		c.fields.setField("queue", c.reader.options.Queue)
	}
	c.readLabels()
	if !c.readProgram() {
		c.addNote(tooLarge, containersPath...)
		return
	}
	c.fields.node.Content = append(c.fields.node.Content, rule.node.Content...)
	c.readPolicies()
	c.noteLeftOut()
	c.noteMistyped()
	e.id, e.fields = id, c.fields
	if c.disabledReason != "" {
		e.turnOff(c.disabledReason, func(text string) { c.addNote(text, containersPath...) })
	}
}

// jobID returns the object's name, or the prefix of a generated name.
func (c *cronJob) jobID() string {
	if group, _, _ := strings.Cut(c.values.textAt("apiVersion"), "/"); group != "" && group != "batch" {
		c.addNote(fmt.Sprintf("apiVersion %q is not that of Kubernetes; it is read as if it were",
			clipText(c.values.textAt("apiVersion"), 64)), "apiVersion")
	}
	name := c.values.textAt("metadata", "name")
	if begin := strings.TrimRight(c.values.textAt("metadata", "generateName"), "-."); name == "" && begin != "" {
		c.addNote("generateName: Kubernetes adds characters by chance; here the id has none, so that applying "+
			"again makes no second job", "metadata", "generateName")
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

// readSchedule reads the schedule. It returns false if it cannot.
func (c *cronJob) readSchedule() bool {
	expression, zone := c.cronExpression()
	switch {
	case expression == "":
		c.addNote("spec.schedule is missing; it was skipped", "spec", "schedule")
		return false
	case strings.HasPrefix(expression, "@every"):
		return c.readInterval(expression)
	}
	expressions := eitherDay(expression)
	spec := schedule.Spec{Kind: schedule.KindCron, Cron: expressions, TimeZone: zone}
	_, err := schedule.Compile(spec, time.Unix(1_700_000_000, 0), 1)
	if err != nil && len(expressions) == 1 && strings.Contains(err.Error(), noTimeReason) {
		c.manual = true
		c.addNote(fmt.Sprintf("schedule %q never comes: the job has none, and runs by fermata jobs run",
			clipText(expression, 80)), "spec", "schedule")
		return true
	}
	if err != nil || len(expression) > 256 {
		c.addNote(fmt.Sprintf("schedule %q in time zone %q: not understood: %v; it was skipped%s",
			clipText(expression, 80), clipText(zone, 80), err, templateHint(expression)), "spec", "schedule")
		return false
	}
	cron := newMapping().setField("expressions", expressions).setField("time_zone", zone)
	if zone != "UTC" && zone != "Etc/UTC" {
		// The controller uses wall-clock time: no run at a skipped time, two runs at a repeated one.
		cron.setField("dst_gap", "skip").setField("dst_repeat", "both")
	}
	c.fields.setField("schedule", newMapping().setField("cron", cron.setFlowStyle()))
	return true
}

// cronExpression is the schedule without a zone, and the zone.
func (c *cronJob) cronExpression() (expression, zone string) {
	expression, zone = strings.TrimSpace(c.values.textAt("spec", "schedule")), c.values.textAt("spec", "timeZone")
	for _, prefix := range []string{"CRON_TZ=", "TZ="} { // taken by Kubernetes before 1.29
		if rest, ok := strings.CutPrefix(expression, prefix); ok {
			words, after := splitFields(rest, 1)
			if zone != "" && zone != words[0] {
				c.addNote(fmt.Sprintf("timeZone %q is left out: the schedule has a zone, and Kubernetes refuses both",
					clipText(zone, 64)), "spec", "timeZone")
			}
			expression, zone = strings.TrimSpace(after), words[0]
		}
	}
	return expression, cmp.Or(zone, c.reader.options.Zone)
}

// readInterval reads @every. Kubernetes uses whole seconds of it.
func (c *cronJob) readInterval(expression string) bool {
	d, err := time.ParseDuration(strings.TrimSpace(strings.TrimPrefix(expression, "@every")))
	if err != nil || d < 5*time.Second || d > 366*24*time.Hour {
		c.addNote(fmt.Sprintf("schedule %q: an interval is 5 s to a year; it was skipped",
			clipText(expression, 80)), "spec", "schedule")
		return false
	}
	c.fields.setField("schedule", newMapping().setField("interval",
		newMapping().setField("every", d.Truncate(time.Second).String()).setFlowStyle()))
	return true
}

// noTimeReason is in the error of package schedule for an expression without a time, such as February 31.
const noTimeReason = "no instant within"

// eitherDay returns expressions that together mean what Kubernetes means by one. In Kubernetes, if neither day
// field is a star, one of them must match, and a star with a step does not count as a star. In Fermata a field
// that begins with a star must match.
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

// untilSaturday ends a step at Saturday, as Kubernetes does: in Fermata it would include 7, Sunday.
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

func (c *cronJob) readLabels() {
	given, _ := c.values.valueAt("metadata", "labels").(map[string]any)
	labels := newMapping()
	for _, key := range slices.Sorted(maps.Keys(given)) {
		value, ok := given[key].(string)
		if !ok || len(key) > 128 || len(value) > 128 || len(labels.node.Content) >= 2*30 ||
			printableText(key+value) != key+value || key == "" {
			c.addNote("label "+clipText(key, 80)+" is left out: up to 30 of text, 128 bytes each", "metadata",
				"labels", key)
			continue
		}
		labels.setField(key, value)
	}
	if !labels.isEmpty() {
		c.fields.setField("labels", labels)
	}
}
