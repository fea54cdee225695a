// Package release makes a release of a copy of this repository, and installs it as users do.
package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
)

const root = "../.."

// shell is a directory in which commands run, and what their environment has besides the test's.
type shell struct {
	dir string
	env []string
}

func (s shell) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := s.try(t, name, args...)
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return out
}

func (s shell) try(t *testing.T, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s shell) write(t *testing.T, file, text string) {
	path := filepath.Join(s.dir, file)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) // .ci/release is a program
}

func (s shell) read(t *testing.T, file string) string {
	text, err := os.ReadFile(filepath.Join(s.dir, file))
	require.NoError(t, err)
	return string(text)
}

// newRepository returns an empty repository.
func newRepository(t *testing.T) shell {
	s := shell{dir: t.TempDir(), env: []string{
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull,
	}}
	s.run(t, "git", "init", "-q", "-b", "main")
	return s
}

func (s shell) commit(t *testing.T) {
	s.run(t, "git", "add", "-A")
	s.run(t, "git", "commit", "-q", "-m", "test")
}

// modules are those that users import, and the command, as their paths end.
var modules = []string{"", "/chanqprom", "/otelchanq", "/watermillchanq", "/gocloudchanq", "/cmd/chanq"}

// small returns a repository with the script, and with modules that have no code.
func small(t *testing.T) shell {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: .ci/release is a shell script")
	}
	s := newRepository(t)
	s.write(t, ".ci/release", shell{dir: root}.read(t, ".ci/release"))
	s.write(t, ".gitignore", "/dist/\n")
	s.write(t, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\nNews.\n\n## 0.0.9 (2020-01-01)\n\nOld.\n")
	s.write(t, "go.mod", "module github.com/chanq/chanq\n")
	s.write(t, "chanqprom/go.mod", "module github.com/chanq/chanq/chanqprom\n\nrequire github.com/chanq/chanq v0.0.9\n")
	for _, module := range []string{"otelchanq", "watermillchanq", "gocloudchanq"} {
		s.write(t, module+"/go.mod", "module github.com/chanq/chanq/"+module+"\n\nrequire github.com/chanq/chanq v0.0.9\n")
	}
	s.write(t, "cmd/chanq/go.mod", "module github.com/chanq/chanq/cmd/chanq\n\nrequire (\n"+
		"\tgithub.com/chanq/chanq v0.0.9\n\tgithub.com/chanq/chanq/chanqprom v0.0.9\n)\n")
	for _, module := range modules[1:] {
		s.write(t, module[1:]+"/go.sum", "github.com/chanq/chanq v0.0.9 h1:stale\n")
	}
	s.commit(t)
	return s
}

func TestPrepareRefusesWhatCannotBeReleased(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(t *testing.T, s shell)
		version string
		says    string
	}{
		"no version":                {nil, "0.1.0", "0.1.0 is no version"},
		"two numbers":               {nil, "v0.1", "v0.1 is no version"},
		"a leading zero":            {nil, "v0.01.0", "v0.01.0 is no version"},
		"an empty pre-release":      {nil, "v0.1.0-", "v0.1.0- is no version"},
		"a major version of a path": {nil, "v2.0.0", "have it in their path"},
		"the latest tag": {func(t *testing.T, s shell) { s.run(t, "git", "tag", "v0.1.0") },
			"v0.1.0", "v0.1.0 is not above v0.1.0"},
		"below the latest tag": {func(t *testing.T, s shell) { s.run(t, "git", "tag", "v0.10.0"); s.run(t, "git", "tag", "v0.2.0") },
			"v0.9.0", "v0.9.0 is not above v0.10.0"},
		"a pre-release of what is released": {func(t *testing.T, s shell) { s.run(t, "git", "tag", "v0.1.0") },
			"v0.1.0-rc.1", "v0.1.0-rc.1 is not above v0.1.0"},
		"changes": {func(t *testing.T, s shell) { s.write(t, "CHANGELOG.md", "## Unreleased\n\nOther news.\n") },
			"v0.1.0", "the tree has changes"},
		"a new file": {func(t *testing.T, s shell) { s.write(t, "new.go", "package chanq\n") },
			"v0.1.0", "the tree has changes"},
		"no news": {func(t *testing.T, s shell) {
			s.write(t, "CHANGELOG.md", "## Unreleased\n\n## 0.0.9\n\nOld.\n")
			s.commit(t)
		},
			"v0.1.0", "CHANGELOG.md has no text"},
		"no section": {func(t *testing.T, s shell) { s.write(t, "CHANGELOG.md", "## 0.0.9\n\nOld.\n"); s.commit(t) },
			"v0.1.0", "CHANGELOG.md has no text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := small(t)
			if c.change != nil {
				c.change(t, s)
			}
			before := s.run(t, "git", "status", "--porcelain")
			out, err := s.try(t, ".ci/release", "prepare", c.version)
			require.Error(t, err, out)
			require.Contains(t, out, c.says)
			require.Equal(t, before, s.run(t, "git", "status", "--porcelain"))
		})
	}
}

func TestWithoutArgumentsItSaysHow(t *testing.T) {
	t.Parallel()
	s := small(t)
	for _, args := range [][]string{nil, {"prepare"}, {"prepare", "v0.1.0", "v0.2.0"}, {"v0.1.0", "dist"}} {
		out, err := s.try(t, ".ci/release", args...)
		require.Error(t, err)
		require.Contains(t, out, ".ci/release prepare VERSION  ")
		require.Contains(t, out, ".ci/release build DIR  ")
		require.NotContains(t, out, "set -euo")
	}
}

func TestAReleaseCandidateComesBeforeItsRelease(t *testing.T) {
	t.Parallel()
	s := small(t)
	for _, version := range []string{"v0.1.0-rc.2", "v0.1.0-rc.10", "v0.1.0"} {
		s.write(t, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\nNews of "+version+".\n\n## 0.0.9 (2020-01-01)\n\nOld.\n")
		s.commit(t)
		s.release(t, version)
		require.Equal(t, "News of "+version+".\n\n", s.read(t, "dist/notes.md"))
	}
}

// release runs prepare, and what it prints except for pushes. It returns the tags in the order of their pushes.
func (s shell) release(t *testing.T, version string) (tags []string) {
	out := s.run(t, ".ci/release", "prepare", version)
	for line := range strings.Lines(out) {
		if push, is := strings.CutPrefix(line, "git push origin "); is {
			tags = append(tags, strings.Fields(push)...)
		} else {
			require.Regexp(t, "^git (commit|tag) ", line)
			s.run(t, "sh", "-c", line)
		}
	}
	require.Equal(t, "HEAD", tags[0])
	return tags[1:]
}

// The copy has the files of this tree, committed or not. Its tags fill the module proxy, which is a module cache that Go has made.
func TestTheModulesOfAReleaseAreInstalledFromAProxy(t *testing.T) {
	testdb.Soak(t) // third-party modules come from the module cache, or the network; all are compiled: two minutes of a core
	const version = "v0.1.0"
	here := shell{dir: root}
	origin := newRepository(t)
	for file := range strings.SplitSeq(strings.TrimSuffix(here.run(t, "git", "ls-files", "-coz", "--exclude-standard"), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, file)); err == nil { // not deleted
			origin.write(t, file, here.read(t, file))
		}
	}
	origin.commit(t)
	news := regexp.MustCompile(`(?s)\n## Unreleased\n\n(.*?)\s*(\n## |$)`).FindStringSubmatch(origin.read(t, "CHANGELOG.md"))
	require.NotEmpty(t, news)

	// The user's go command knows neither the workspace nor the checksum database.
	cache, proxy, bin := t.TempDir(), t.TempDir(), t.TempDir()
	user := shell{dir: t.TempDir(), env: append(origin.env, "GOWORK=off", "GOTOOLCHAIN=local", "GOFLAGS=-modcacherw -trimpath",
		"GOBIN="+bin, "GONOSUMDB=github.com/chanq/chanq", "GOPRIVATE=", "GONOPROXY=none")}
	goenv := func(name string) string { return strings.TrimSpace(here.run(t, "go", "env", name)) }
	others := "file://" + filepath.Join(goenv("GOMODCACHE"), "cache/download") + "," + goenv("GOPROXY")

	var tags []string
	for _, module := range modules {
		tags = append(tags, strings.TrimPrefix(module+"/"+version, "/"))
	}
	require.Equal(t, tags, origin.release(t, version))
	require.Regexp(t, `(?m)^## 0\.1\.0 \(\d{4}-\d\d-\d\d\)$`, origin.read(t, "CHANGELOG.md"))
	require.NotContains(t, origin.read(t, "CHANGELOG.md"), "Unreleased")
	require.Equal(t, news[1], strings.TrimSpace(origin.read(t, "dist/notes.md")))
	for _, module := range modules {
		require.NotRegexp(t, `(?m)^(replace|exclude)\b`, origin.read(t, "."+module+"/go.mod"))
	}
	// Modules that take these from the tree still load: their go.mod wants no update.
	for _, module := range []string{"deploy/check", "prove/ormtx"} {
		apart := shell{dir: filepath.Join(origin.dir, module), env: []string{"GOWORK=off", "GOFLAGS=-mod=readonly"}}
		apart.run(t, "go", "list", "./...")
	}
	origin.run(t, "go", "list", "-deps", "./cmd/chanq")
	for _, module := range []string{"otelchanq", "watermillchanq", "gocloudchanq"} {
		shell{dir: filepath.Join(origin.dir, module)}.run(t, "go", "list", "-deps", ".")
	}
	// A second prepare of the same commit changes nothing.
	for _, module := range modules {
		origin.run(t, "git", "tag", "-d", strings.TrimPrefix(module+"/"+version, "/"))
	}
	again := origin.run(t, ".ci/release", "prepare", version)
	require.NotContains(t, again, "git commit")
	require.Empty(t, origin.run(t, "git", "status", "--porcelain"))
	origin.release(t, version)

	fill := shell{dir: user.dir, env: append(user.env, "GOMODCACHE="+proxy, "GOPROXY="+others, "GONOPROXY=github.com/chanq/chanq",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+origin.dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/chanq/chanq")}
	for _, module := range modules {
		fill.run(t, "go", "mod", "download", "github.com/chanq/chanq"+module+"@"+version)
	}
	user.env = append(user.env, "GOMODCACHE="+cache, "GOPROXY=file://"+filepath.Join(proxy, "cache/download")+","+others)

	// README's lines, as they are and with the version.
	_, program, _ := strings.Cut(here.read(t, "README.md"), "\n```go\n")
	program, _, _ = strings.Cut(program, "\n```\n")
	user.write(t, "main.go", program+"\n")
	user.run(t, "go", "mod", "init", "example.com/shop")
	lines := regexp.MustCompile(`(?m)^go (?:get|install) github\.com/chanq/chanq\S*@latest`).FindAllString(here.read(t, "README.md"), -1)
	require.Len(t, lines, 2)
	for _, module := range modules[1 : len(modules)-1] {
		lines = append(lines, "go get github.com/chanq/chanq"+module+"@latest")
	}
	for _, line := range lines {
		user.run(t, "sh", "-c", line)
		user.run(t, "sh", "-c", strings.Replace(line, "@latest", "@"+version, 1))
	}
	mod := user.read(t, "go.mod")
	for _, module := range modules[:len(modules)-1] {
		require.Contains(t, mod, "\tgithub.com/chanq/chanq"+module+" "+version+" ")
	}
	user.run(t, "go", "mod", "tidy")
	user.run(t, "go", "build", "-o", "shop.exe", ".")
	require.Equal(t, "order: tea\norder: cake\n", user.run(t, filepath.Join(user.dir, "shop.exe")))
	command := filepath.Join(bin, "chanq")
	require.Regexp(t, `^chanq v0\.1\.0, schema \d+, go\S+ \w+/\w+\n$`, user.run(t, command, "--version"))

	// The checksums of the commit are those of its tags.
	for _, module := range modules[1:] {
		clone := shell{dir: filepath.Join(origin.dir, module), env: append(user.env, "GOFLAGS=-mod=readonly -modcacherw")}
		clone.run(t, "go", "list", "-deps", ".")
	}
}
