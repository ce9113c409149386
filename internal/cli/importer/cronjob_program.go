package importer

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

var containersPath = []string{"spec", "jobTemplate", "spec", "template", "spec", "containers"}

// readProgram converts the first container to a payload. It returns false if the payload would be too large.
func (c *cronJob) readProgram() bool {
	list, _ := c.values.valueAt(containersPath...).([]any)
	var first map[string]any
	if len(list) > 0 {
		first, _ = list[0].(map[string]any)
	}
	switch {
	case len(list) > 1:
		c.addNote(fmt.Sprintf("only the first of %d containers is taken", len(list)), containersPath...)
	case first == nil:
		c.disabledReason = "there is no list of containers, without which Kubernetes refuses the CronJob"
	}
	box := valueTree{first}
	env := c.readEnvironment(box)
	command := c.readArguments(box, "command")
	argv := append(command, c.readArguments(box, "args")...)
	image := box.textAt("image")
	if len(command) == 0 && len(argv) > 0 && strings.HasPrefix(argv[0], "/") && scriptIndex(argv) > 0 {
		c.addNote("there is no command: args begin with a shell, and are taken for it, as by an image without an "+
			"entry point", containersPath...)
		command = argv
	}
	script := scriptIndex(argv)
	c.resolveArguments(argv, script, env)
	if !c.takeProgram(env, append(slices.Clip(argv), box.textAt("workingDir"))) {
		return false
	}
	if len(command) == 0 {
		c.setHandler(argv, image, env)
		return true
	}
	c.checkProgram(argv)
	c.checkSurroundings(box, argv, script, env)
	if c.disabledReason == "" {
		needs := "workers need --exec-allow " + clipText(argv[0], 128)
		if image != "" {
			needs = fmt.Sprintf("image %q: workers need its programs, and --exec-allow %s", clipText(image, 128),
				clipText(argv[0], 128))
		}
		c.addNote(needs, containersPath...)
		if script > 0 {
			c.addNote("runs in a shell, which allows every program", containersPath...)
		}
	}
	variables, exports := programVariables(env, script > 0, func(text string) { c.addNote(text, containersPath...) })
	if exports != "" {
		argv[script] = exports + argv[script]
	}
	exec := newMapping().setField("argv", argv)
	if variables != nil {
		exec.setField("env", variables)
	}
	c.setDirectory(box, exec)
	c.fields.setField("exec", exec)
	for _, key := range slices.Sorted(maps.Keys(first)) {
		switch key {
		case "name", "image", "command", "args", "env", "workingDir", "imagePullPolicy",
			"terminationMessagePath", "terminationMessagePolicy", "envFrom":
		default:
			if !isEmpty(first[key]) {
				c.addNote("containers: "+clipText(key,
					64)+" is left out: it is a matter of pods, and runs happen in workers", containersPath...)
			}
		}
	}
	return true
}

// takeProgram takes the variables and other texts of the payload out of the budget. It returns false if they are
// too large for a payload.
func (c *cronJob) takeProgram(env map[string]string, texts []string) bool {
	budget, line := c.reader.budget, max(1, c.node.Line)
	if c.room < 0 {
		budget.spend(c.reader.file, line, maxPayload) // what the expansion has taken
		return false
	}
	return budget.spendProgram(c.reader.file, line, env, texts...)
}

// setHandler uses a custom handler for the default command of an image.
func (c *cronJob) setHandler(argv []string, image string, env map[string]string) {
	id := c.fields.node.Content[1].Value
	c.addNote(fmt.Sprintf("there is no command, and what image %q starts is not known here: register a handler %q "+
		"with workers, or write exec: {argv: [...]}",
		clipText(image, 128), id), containersPath...)
	if len(env) > 0 {
		c.addNote("variables "+clipText(strings.Join(slices.Sorted(maps.Keys(env)), ", "),
			256)+" are left out: set them where the handler runs", containersPath...)
	}
	c.fields.setField("handler", id)
	if len(argv) > 0 {
		c.fields.setField("payload_text", strings.Join(argv, "\n"))
	}
}

func (c *cronJob) setDirectory(box valueTree, exec *yamlMapping) {
	dir := box.textAt("workingDir")
	switch {
	case dir == "":
	case !strings.HasPrefix(dir, "/") || strings.ContainsRune(dir, 0):
		c.addNote(fmt.Sprintf("directory %q is left out: it is no absolute path, which workers ask for",
			clipText(dir, 128)), containersPath...)
	default:
		c.addNote(fmt.Sprintf("directory %q: workers need --exec-dir with it, or one above it", clipText(dir, 128)),
			containersPath...)
		exec.setField("dir", dir)
	}
}

// checkProgram completes the path of a shell, and detects programs that no worker runs.
func (c *cronJob) checkProgram(argv []string) {
	if posixShells[argv[0]] && argv[0] != "." {
		c.addNote(fmt.Sprintf("%s is taken for /bin/%s", argv[0], argv[0]), containersPath...)
		argv[0] = "/bin/" + argv[0]
	}
	clean, ok := cleanPath(argv[0])
	if ok {
		argv[0] = clean
	}
	all := strings.Join(argv, " ")
	switch {
	case c.disabledReason != "":
	case !strings.HasPrefix(argv[0], "/"):
		c.disabledReason = fmt.Sprintf("program %q has no absolute path, which workers ask for: complete it",
			clipText(argv[0], 128))
	case !ok:
		c.disabledReason = fmt.Sprintf("program %q has .. in its path, which workers refuse: write it without",
			clipText(argv[0], 128))
	case strings.Contains(all, secretReference):
		c.disabledReason = "${secret: is allowed in variables and input only, and workers refuse this command"
	case strings.ContainsRune(all, 0):
		c.disabledReason = "the command has a NUL byte, and workers refuse it"
	}
}

// cleanPath is an absolute path as workers take it. It is false for one with .., which leads elsewhere where
// a directory is a link.
func cleanPath(p string) (string, bool) {
	if !path.IsAbs(p) || slices.Contains(strings.Split(p, "/"), "..") {
		return "", false
	}
	return path.Clean(p), true
}

var (
	// kubernetesVariables are variables of pods that no manifest names.
	kubernetesVariables = regexp.MustCompile(`\$\{?(HOSTNAME|[A-Z0-9_]+_SERVICE_(?:HOST|PORT)\w*)\b`)
	serviceVariable     = regexp.MustCompile(`^[A-Z0-9_]+_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$`)
	// relativeArgument is a file in the directory that a program starts in.
	relativeArgument = regexp.MustCompile(`^\.{1,2}/|^\w[\w.-]*/[\w./-]+$|^\w[\w-]*\.(py|sh|js|mjs|ts|php|rb|pl|jar)$`)
)

// checkSurroundings notes what the program has in a pod and not on a worker.
func (c *cronJob) checkSurroundings(box valueTree, argv []string, script int, env map[string]string) {
	relative := false
	if script > 0 {
		plain := readScript(argv[script]).plain
		relative = relativePath.MatchString(plain) && !changesDir.MatchString(plain)
		var unset []string
		for _, m := range kubernetesVariables.FindAllStringSubmatch(plain, -1) {
			if _, known := env[m[1]]; !known && !slices.Contains(unset, m[1]) {
				unset = append(unset, m[1])
			}
		}
		if len(unset) > 0 {
			c.addNote(clipText(strings.Join(unset, ", "), 256)+": Kubernetes sets this, workers do not",
				containersPath...)
		}
	} else {
		relative = slices.ContainsFunc(argv[1:], relativeArgument.MatchString)
	}
	if relative && box.textAt("workingDir") == "" {
		c.addNote("has a relative path: a container starts in the directory of its image, here a program starts in "+
			"/, or in the worker's --exec-dir", containersPath...)
	}
}

// anyVariable stands for the unknown variables of an envFrom.
const anyVariable = "*"

// readEnvironment reads variables, which may refer to earlier ones.
func (c *cronJob) readEnvironment(box valueTree) map[string]string {
	env := map[string]string{}
	list, isList := box.valueAt("env").([]any)
	if box.valueAt("env") != nil && !isList {
		c.addNote("env is left out: it is no list, which Kubernetes refuses", containersPath...)
	}
	c.unknown[anyVariable] = !isEmpty(box.valueAt("envFrom"))
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok && c.room >= 0 {
			c.readVariable(valueTree{fields}, env)
		}
	}
	if c.unknown[anyVariable] {
		c.addNote("envFrom is left out: name the variables", containersPath...)
	}
	return env
}

// readVariable reads one variable.
func (c *cronJob) readVariable(v valueTree, env map[string]string) {
	name := v.textAt("name")
	secret, key := v.textAt("valueFrom", "secretKeyRef", "name"), v.textAt("valueFrom", "secretKeyRef", "key")
	switch {
	case name == "":
	case secret != "" && key != "":
		ref := c.reader.secretName(secret, key)
		if v.valueAt("valueFrom", "secretKeyRef", "optional") == true {
			c.addNote(fmt.Sprintf("variable %s may be missing in Kubernetes; here a run without the secret fails",
				clipText(name, 64)), containersPath...)
		}
		env[name] = secretReference + ref + "}"
		c.addNote(fmt.Sprintf("variable %s: give workers the key %q of Secret %q as the secret %s (--secrets-dir)",
			clipText(name, 64), clipText(key, 64), clipText(secret, 64), ref), containersPath...)
	case v.valueAt("valueFrom", "fieldRef", "fieldPath") == "metadata.namespace" &&
		c.values.textAt("metadata", "namespace") != "":
		env[name] = c.values.textAt("metadata", "namespace")
	case v.valueAt("valueFrom") != nil:
		c.unknown[name] = true
		c.addNote(fmt.Sprintf("variable %s is left out: its value comes from elsewhere in Kubernetes",
			clipText(name, 64)), containersPath...)
	default:
		value, isText := v.valueAt("value").(string)
		if raw := v.valueAt("value"); raw != nil && !isText {
			value = fmt.Sprint(raw)
			c.addNote(fmt.Sprintf("variable %s has no text as its value, which Kubernetes refuses: %q is taken",
				clipText(name, 64), clipText(value, 64)), containersPath...)
		}
		value, parts := c.expandVariables(value, env)
		if missing := parts.missingNames(); len(missing) > 0 {
			c.unknown[name] = true
			c.addNote(fmt.Sprintf("variable %s is left out: its value has that of %s, which is not in the manifest",
				clipText(name, 64), clipText(strings.Join(missing, ", "), 128)), containersPath...)
			return
		}
		env[name] = value
	}
}

// secretName returns the name of a Secret's key among the secrets of workers.
func (r *manifestReader) secretName(secret, key string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '-'
	}, strings.ToLower(secret+"-"+key))
	name = strings.TrimLeft(name, "._-")
	const most = 63
	taken, isTaken := r.secrets[name]
	if of := secret + "\x00" + key; len(name) > most || name == "" || strings.HasSuffix(name, ".allow") || isTaken &&
		taken != of {
		name = strings.Trim(clipText(name, most-7), "._-") + "-" + shortHash(secret, key)
		name = strings.TrimLeft(name, "-")
	}
	r.secrets[name] = secret + "\x00" + key
	return name
}

// readArguments returns the items of command or args. A value that is not a list cannot run.
func (c *cronJob) readArguments(box valueTree, key string) (out []string) {
	list, ok := box.valueAt(key).([]any)
	if !ok && box.valueAt(key) != nil {
		c.disabledReason = key + " is no list, which Kubernetes refuses"
		return []string{fmt.Sprint(box.valueAt(key))}
	}
	for _, item := range list {
		out = append(out, fmt.Sprint(item))
	}
	return out
}
