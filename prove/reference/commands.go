package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var listed = regexp.MustCompile(`(?m)^  ([a-z]+) +\S`)

// commands returns the page of commands. It builds the command, and reads its help.
func commands() (string, error) {
	dir, err := os.MkdirTemp("", "reference")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "chanq")
	build := exec.Command("go", "build", "-o", binary, "./cmd/chanq")
	build.Env = append(os.Environ(), "GOWORK=") // the command is another module of the workspace
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	help := func(args ...string) (string, error) {
		out, err := exec.Command(binary, append(args, "--help")...).Output()
		return string(out), err
	}
	top, err := help()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(`# Commands

<!-- go run ./prove/reference writes this page. Change the help of the commands in cmd/chanq instead. -->

Install the command with ` + "`go install github.com/chanq/chanq/cmd/chanq@latest`" + `. You tell each command which database it uses:

` + "```text\n" + strings.TrimPrefix(block(top, "Examples:"), "\n") + block(top, "Flags:") + "```" + `

- **Passwords.** Other users of the machine can read command lines. So put the DSN of a server into a file
  (` + "`--dsn @FILE`" + `) or a variable (` + "`--dsn env:NAME`, or `CHANQ_DSN`" + `).
- **Exit status.** 0 is success, 1 a failure (of ` + "`chanq doctor`" + `: something is broken), 2 a mistake in the command line, 130
  an interrupt, and 141 a closed pipe, for example of ` + "`head`" + `. You can repeat and interrupt
  every command. Ctrl-C lets it finish its current step; press it again to stop immediately.
- **JSON.** With ` + "`-o json`" + ` each command prints one value per line: ` + "`peek`" + ` an object
  for each message, and ` + "`stats`" + `, ` + "`top`" + `, ` + "`consumers`" + ` and ` + "`doctor`" + ` an array. An error is a line on
  standard error, for example
  ` + "`{\"error\":\"…\",\"status\":1}`" + `.
- **Completion.** ` + "`source <(chanq completion bash)`" + ` completes commands, flags and names of queues.

The blocks below leave out the flags of all commands.
`)
	err = describe(&b, top, help)
	return b.String(), err
}

// describe writes a section for each command that a help text lists, and for the commands below it.
func describe(b *strings.Builder, text string, help func(...string) (string, error), path ...string) error {
	_, list, _ := strings.Cut(text, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, name := range listed.FindAllStringSubmatch(list, -1) {
		if name[1] == "help" || name[1] == "completion" {
			continue
		}
		of := append(slices.Clone(path), name[1])
		text, err := help(of...)
		if err != nil {
			return err
		}
		about, _, _ := strings.Cut(text, "\n\n")
		_, usage, _ := strings.Cut(text, "Usage:\n  ")
		usage, _, _ = strings.Cut(usage, "\n")
		fmt.Fprintf(b, "\n## %s\n\n%s\n```text\n%s\n%s%s```\n", strings.Join(of, " "), wrapped(about, ""), usage, block(text, "Examples:"), block(text, "Flags:"))
		if err := describe(b, text, help, of...); err != nil {
			return err
		}
	}
	return nil
}

// block returns a part of a help text with its title, without the flag --help.
func block(text, title string) string {
	_, part, found := strings.Cut(text, "\n"+title+"\n")
	if !found {
		return ""
	}
	part, _, _ = strings.Cut(part, "\n\n")
	var lines []string
	for line := range strings.Lines(part) {
		if line = strings.TrimRight(line, "\n "); !strings.HasPrefix(line, "  -h, --help") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\n" + title + "\n" + strings.Join(lines, "\n") + "\n"
}
