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

// program makes the payload of the first container.
func (c *cronJob) program() {
	list, _ := c.all.get(containersPath...).([]any)
	var first map[string]any
	if len(list) > 0 {
		first, _ = list[0].(map[string]any)
	}
	switch {
	case len(list) > 1:
		c.note(fmt.Sprintf("only the first of %d containers is taken", len(list)), containersPath...)
	case first == nil:
		c.off = "there is no list of containers, without which Kubernetes refuses the CronJob"
	}
	box := tree{first}
	env := c.environment(box)
	command := c.words(box, "command")
	argv := append(command, c.words(box, "args")...)
	image := box.text("image")
	if len(command) == 0 && len(argv) > 0 && strings.HasPrefix(argv[0], "/") && scriptIndex(argv) > 0 {
		c.note("there is no command: args begin with a shell, and are taken for it, as by an image without an entry point", containersPath...)
		command = argv
	}
	script := scriptIndex(argv)
	c.resolve(argv, script, env)
	if len(command) == 0 {
		c.handler(argv, image, env)
		return
	}
	c.checkProgram(argv)
	c.checkSurroundings(box, argv, script, env)
	if c.off == "" {
		needs := "workers need --exec-allow " + clip(argv[0], 128)
		if image != "" {
			needs = fmt.Sprintf("image %q: workers need its programs, and --exec-allow %s", clip(image, 128), clip(argv[0], 128))
		}
		c.note(needs, containersPath...)
		if script > 0 {
			c.note("runs in a shell, which allows every program", containersPath...)
		}
	}
	variables, exports := programVariables(env, script > 0, func(text string) { c.note(text, containersPath...) })
	if exports != "" {
		argv[script] = exports + argv[script]
	}
	exec := newMapping().set("argv", argv)
	if variables != nil {
		exec.set("env", variables)
	}
	c.directory(box, exec)
	c.out.set("exec", exec)
	for _, key := range slices.Sorted(maps.Keys(first)) {
		switch key {
		case "name", "image", "command", "args", "env", "workingDir", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy", "envFrom":
		default:
			if !isEmpty(first[key]) {
				c.note("containers: "+clip(key, 64)+" is left out: it is a matter of pods, and runs happen in workers", containersPath...)
			}
		}
	}
}

// handler makes a job for a handler of its own, of what an image starts.
func (c *cronJob) handler(argv []string, image string, env map[string]string) {
	id := c.out.node.Content[1].Value
	c.note(fmt.Sprintf("there is no command, and what image %q starts is not known here: register a handler %q with workers, or write exec: {argv: [...]}",
		clip(image, 128), id), containersPath...)
	if len(env) > 0 {
		c.note("variables "+clip(strings.Join(slices.Sorted(maps.Keys(env)), ", "), 256)+" are left out: set them where the handler runs", containersPath...)
	}
	c.out.set("handler", id)
	if len(argv) > 0 {
		c.out.set("payload_text", strings.Join(argv, "\n"))
	}
}

func (c *cronJob) directory(box tree, exec *mapping) {
	dir := box.text("workingDir")
	switch {
	case dir == "":
	case !strings.HasPrefix(dir, "/") || strings.ContainsRune(dir, 0):
		c.note(fmt.Sprintf("directory %q is left out: it is no absolute path, which workers ask for", clip(dir, 128)), containersPath...)
	default:
		c.note(fmt.Sprintf("directory %q: workers need --exec-dir with it, or one above it", clip(dir, 128)), containersPath...)
		exec.set("dir", dir)
	}
}

// checkProgram completes the path of a shell, and finds what no worker runs.
func (c *cronJob) checkProgram(argv []string) {
	if posix[argv[0]] && argv[0] != "." {
		c.note(fmt.Sprintf("%s is taken for /bin/%s", argv[0], argv[0]), containersPath...)
		argv[0] = "/bin/" + argv[0]
	}
	clean, ok := cleanPath(argv[0])
	if ok {
		argv[0] = clean
	}
	all := strings.Join(argv, " ")
	switch {
	case c.off != "":
	case !strings.HasPrefix(argv[0], "/"):
		c.off = fmt.Sprintf("program %q has no absolute path, which workers ask for: complete it", clip(argv[0], 128))
	case !ok:
		c.off = fmt.Sprintf("program %q has .. in its path, which workers refuse: write it without", clip(argv[0], 128))
	case strings.Contains(all, secretReference):
		c.off = "${secret: may stand in variables and input only, and workers refuse this command"
	case strings.ContainsRune(all, 0):
		c.off = "the command has a NUL byte, and workers refuse it"
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
	// setByKubernetes are variables of pods that no manifest names.
	setByKubernetes = regexp.MustCompile(`\$\{?(HOSTNAME|[A-Z0-9_]+_SERVICE_(?:HOST|PORT)\w*)\b`)
	serviceVariable = regexp.MustCompile(`^[A-Z0-9_]+_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$`)
	// relativeArgument is a file in the directory that a program starts in.
	relativeArgument = regexp.MustCompile(`^\.{1,2}/|^\w[\w.-]*/[\w./-]+$|^\w[\w-]*\.(py|sh|js|mjs|ts|php|rb|pl|jar)$`)
)

// checkSurroundings notes what the program finds in a pod and not with a worker.
func (c *cronJob) checkSurroundings(box tree, argv []string, script int, env map[string]string) {
	relative := false
	if script > 0 {
		plain := readScript(argv[script]).plain
		relative = relativePath.MatchString(plain) && !changesDir.MatchString(plain)
		var unset []string
		for _, m := range setByKubernetes.FindAllStringSubmatch(plain, -1) {
			if _, known := env[m[1]]; !known && !slices.Contains(unset, m[1]) {
				unset = append(unset, m[1])
			}
		}
		if len(unset) > 0 {
			c.note(clip(strings.Join(unset, ", "), 256)+": Kubernetes sets this, workers do not", containersPath...)
		}
	} else {
		relative = slices.ContainsFunc(argv[1:], relativeArgument.MatchString)
	}
	if relative && box.text("workingDir") == "" {
		c.note("has a relative path: a container starts in the directory of its image, here a program starts in /, or in the worker's --exec-dir", containersPath...)
	}
}

// anyVariable stands for the variables of an envFrom, of which the names are not known.
const anyVariable = "*"

// environment reads variables, which may refer to earlier ones.
func (c *cronJob) environment(box tree) map[string]string {
	env := map[string]string{}
	list, isList := box.get("env").([]any)
	if box.get("env") != nil && !isList {
		c.note("env is left out: it is no list, which Kubernetes refuses", containersPath...)
	}
	c.unknown[anyVariable] = !isEmpty(box.get("envFrom"))
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok {
			c.variable(tree{fields}, env)
		}
	}
	if c.unknown[anyVariable] {
		c.note("envFrom is left out: name the variables", containersPath...)
	}
	return env
}

// variable reads one variable.
func (c *cronJob) variable(v tree, env map[string]string) {
	name := v.text("name")
	secret, key := v.text("valueFrom", "secretKeyRef", "name"), v.text("valueFrom", "secretKeyRef", "key")
	switch {
	case name == "":
	case secret != "" && key != "":
		ref := c.r.secretName(secret, key)
		if v.get("valueFrom", "secretKeyRef", "optional") == true {
			c.note(fmt.Sprintf("variable %s may be missing in Kubernetes; here a run without the secret fails", clip(name, 64)), containersPath...)
		}
		env[name] = secretReference + ref + "}"
		c.note(fmt.Sprintf("variable %s: give workers the key %q of Secret %q as the secret %s (--secrets-dir)", clip(name, 64), clip(key, 64), clip(secret, 64), ref), containersPath...)
	case v.get("valueFrom", "fieldRef", "fieldPath") == "metadata.namespace" && c.all.text("metadata", "namespace") != "":
		env[name] = c.all.text("metadata", "namespace")
	case v.get("valueFrom") != nil:
		c.unknown[name] = true
		c.note(fmt.Sprintf("variable %s is left out: its value comes from elsewhere in Kubernetes", clip(name, 64)), containersPath...)
	default:
		value, isText := v.get("value").(string)
		if raw := v.get("value"); raw != nil && !isText {
			value = fmt.Sprint(raw)
			c.note(fmt.Sprintf("variable %s has no text as its value, which Kubernetes refuses: %q is taken", clip(name, 64), clip(value, 64)), containersPath...)
		}
		value, parts := c.expand(value, env)
		if missing := parts.missing(); len(missing) > 0 {
			c.unknown[name] = true
			c.note(fmt.Sprintf("variable %s is left out: its value has that of %s, which is not in the manifest", clip(name, 64), clip(strings.Join(missing, ", "), 128)), containersPath...)
			return
		}
		env[name] = value
	}
}

// secretName is what a key of a Secret is called among the secrets of workers.
func (r *manifests) secretName(secret, key string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '-'
	}, strings.ToLower(secret+"-"+key))
	name = strings.TrimLeft(name, "._-")
	const most = 63
	taken, isTaken := r.secrets[name]
	if of := secret + "\x00" + key; len(name) > most || name == "" || strings.HasSuffix(name, ".allow") || isTaken && taken != of {
		name = strings.Trim(clip(name, most-7), "._-") + "-" + digest(secret, key)
		name = strings.TrimLeft(name, "-")
	}
	r.secrets[name] = secret + "\x00" + key
	return name
}

// words are the words of command or args. What is no list cannot run.
func (c *cronJob) words(box tree, key string) (out []string) {
	list, ok := box.get(key).([]any)
	if !ok && box.get(key) != nil {
		c.off = key + " is no list, which Kubernetes refuses"
		return []string{fmt.Sprint(box.get(key))}
	}
	for _, item := range list {
		out = append(out, fmt.Sprint(item))
	}
	return out
}
