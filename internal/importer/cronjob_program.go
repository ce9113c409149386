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
	if len(list) > 1 {
		c.note(fmt.Sprintf("only the first of %d containers is taken", len(list)), containersPath...)
	}
	box := tree{first}
	env := c.environment(box)
	command := c.words(box.get("command"), env)
	argv := append(command, c.words(box.get("args"), env)...)
	image := box.text("image")
	if len(command) == 0 && len(argv) > 2 && strings.HasPrefix(argv[0], "/") && posix[path.Base(argv[0])] && shellOption.MatchString(argv[1]) {
		c.note("there is no command: args begin with a shell, and are taken for it, as by an image without an entry point", containersPath...)
		command = argv
	}
	if len(command) == 0 {
		id := c.out.node.Content[1].Value
		c.note(fmt.Sprintf("there is no command, and what image %q starts is not known here: register a handler %q with workers, or write exec: {argv: [...]}",
			clip(image, 128), id), containersPath...)
		c.out.set("handler", id)
		if len(argv) > 0 {
			c.out.set("payload_text", strings.Join(argv, "\n"))
		}
		return
	}
	c.checkProgram(argv)
	shell := len(argv) > 2 && posix[path.Base(argv[0])] && shellOption.MatchString(argv[1])
	if c.off == "" {
		needs := "workers need --exec-allow " + clip(argv[0], 128)
		if image != "" {
			needs = fmt.Sprintf("image %q: workers need its programs, and --exec-allow %s", clip(image, 128), clip(argv[0], 128))
		}
		c.note(needs, containersPath...)
		if shell {
			c.note("runs in a shell, which allows every program", containersPath...)
		}
	}
	variables, exports := programVariables(env, shell, func(text string) { c.note(text, containersPath...) })
	if exports != "" {
		argv[2] = exports + argv[2]
	}
	exec := newMapping().set("argv", argv)
	if variables != nil {
		exec.set("env", variables)
	}
	switch dir := box.text("workingDir"); {
	case dir == "":
	case !strings.HasPrefix(dir, "/") || strings.ContainsRune(dir, 0):
		c.note(fmt.Sprintf("directory %q is left out: it is no absolute path, which workers ask for", clip(dir, 128)), containersPath...)
	default:
		c.note(fmt.Sprintf("directory %q: workers need --exec-dir with it, or one above it", clip(dir, 128)), containersPath...)
		exec.set("dir", dir)
	}
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

// checkProgram completes the path of a shell, and finds what no worker runs.
func (c *cronJob) checkProgram(argv []string) {
	if posix[argv[0]] && argv[0] != "." {
		c.note(fmt.Sprintf("%s is taken for /bin/%s", argv[0], argv[0]), containersPath...)
		argv[0] = "/bin/" + argv[0]
	}
	all := strings.Join(argv, " ")
	switch {
	case !strings.HasPrefix(argv[0], "/"):
		c.off = fmt.Sprintf("program %q has no absolute path, which workers ask for: complete it", clip(argv[0], 128))
	case strings.Contains(all, secretReference):
		c.off = "${secret: may stand in variables and input only, and workers refuse this command"
	case strings.ContainsRune(all, 0):
		c.off = "the command has a NUL byte, and workers refuse it"
	}
}

// anyVariable stands for the variables of an envFrom, of which the names are not known.
const anyVariable = "*"

// environment reads variables, which may refer to earlier ones.
func (c *cronJob) environment(box tree) map[string]string {
	env := map[string]string{}
	list, _ := box.get("env").([]any)
	c.unknown[anyVariable] = !isEmpty(box.get("envFrom"))
	for _, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		v := tree{fields}
		name := v.text("name")
		secret, key := v.text("valueFrom", "secretKeyRef", "name"), v.text("valueFrom", "secretKeyRef", "key")
		switch {
		case name == "":
		case secret != "" && key != "":
			ref := slug(secret+"-"+key, 64)
			if v.get("valueFrom", "secretKeyRef", "optional") == true {
				c.note(fmt.Sprintf("variable %s may be missing in Kubernetes; here a run without the secret fails", clip(name, 64)), containersPath...)
			}
			env[name] = "${secret:" + ref + "}"
			c.note(fmt.Sprintf("variable %s: give workers the key %q of Secret %q as the secret %s (--secrets-dir)", clip(name, 64), clip(key, 64), clip(secret, 64), ref), containersPath...)
		case fields["valueFrom"] != nil:
			c.unknown[name] = true
			c.note(fmt.Sprintf("variable %s is left out: its value comes from elsewhere in Kubernetes", clip(name, 64)), containersPath...)
		default:
			value, isText := v.get("value").(string)
			if raw := v.get("value"); raw != nil && !isText {
				value = fmt.Sprint(raw)
				c.note(fmt.Sprintf("variable %s has no text as its value, which Kubernetes refuses: %q is taken", clip(name, 64), clip(value, 64)), containersPath...)
			}
			env[name] = c.expand(value, env)
		}
	}
	if c.unknown[anyVariable] {
		c.note("envFrom is left out: name the variables", containersPath...)
	}
	return env
}

func (c *cronJob) words(v any, env map[string]string) (out []string) {
	list, _ := v.([]any)
	for _, item := range list {
		out = append(out, c.expand(fmt.Sprint(item), env))
	}
	return out
}

var reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)`)

// expand replaces $(NAME); what is not known stays, as in Kubernetes.
func (c *cronJob) expand(s string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		value, ok := env[ref[2:len(ref)-1]]
		switch {
		case !ok && (c.unknown[ref[2:len(ref)-1]] || c.unknown[anyVariable]):
			c.note(fmt.Sprintf("%s stays as it is: the value of the variable is not in the manifest", clip(ref, 64)), containersPath...)
			return ref
		case !ok:
			return ref
		case strings.Contains(value, "${secret:"):
			c.note(fmt.Sprintf("%s is a secret, which stands in variables and input only", clip(ref, 64)), containersPath...)
			return ref
		}
		return value
	})
}
