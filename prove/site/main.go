// Command site prepares the documents for the site that .ci/site builds: all pages with a menu, and their pictures.
//
//	go run ./prove/site FOLDER
//
// The pages keep their paths, so links between them stay as they are. The generator checks these, with their anchors.
package main

import (
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// github is where links to files that are no pages lead. Files are below blob, folders below tree.
const github = "https://github.com/chanq/chanq/%s/main/%s"

func main() {
	log.SetFlags(0)
	log.SetPrefix("site: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: go run ./prove/site FOLDER")
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/chanq/chanq").Output()
	if err != nil {
		log.Fatal("start it in the repository: ", err)
	}
	files, err := prepare(os.DirFS(strings.TrimSpace(string(root))))
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		name = filepath.Join(os.Args[1], filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// prepare returns the files of the site by their paths: the documents of the root and of docs, and the pictures of docs.
func prepare(root fs.FS) (map[string]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && name != "docs" && !strings.HasPrefix(name, "docs/") {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".md", ".svg", ".png"}, path.Ext(name)) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		files[name] = string(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	lists := menu(files)
	for _, name := range pagesOf(files) {
		text, err := page(root, files, name)
		if err != nil {
			return nil, err
		}
		files[name] = text + lists[name]
	}
	return files, nil
}

// pagesOf returns the paths of the pages, in order.
func pagesOf(files map[string]string) (names []string) {
	for name := range files {
		if path.Ext(name) == ".md" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// parts are blocks of code, code in a line, and what links and pictures lead to: the only ones of these that can change.
var parts = regexp.MustCompile("(?ms)^```.*?^```$|`[^`]*`|" + `!\[([^]]*)\]\(https?://[^)\s]*\)|\]\(([^)\s]+)\)`)

// page returns a page of the site.
func page(root fs.FS, files map[string]string, name string) (string, error) {
	text := files[name]
	if !strings.HasPrefix(text, "# ") {
		return "", fmt.Errorf("%s does not begin with a heading, which is its title", name)
	}
	var dead error
	return parts.ReplaceAllStringFunc(text, func(part string) string {
		found := parts.FindStringSubmatch(part)
		switch {
		case strings.HasPrefix(part, "```"): // words after the language are for tests
			first, rest, _ := strings.Cut(part, "\n")
			language, _, _ := strings.Cut(first, " ")
			return language + "\n" + rest
		case strings.HasPrefix(part, "!"): // from elsewhere: only its description
			return found[1]
		case found[2] == "":
			return part
		}
		target, err := link(root, files, path.Dir(name), found[2])
		if err != nil && dead == nil {
			dead = fmt.Errorf("%s links to %s: %w", name, found[2], err)
		}
		return "](" + target + ")"
	}), dead
}

// link returns what a link of a page in a folder becomes. Links to pages and pictures stay.
func link(root fs.FS, files map[string]string, folder, target string) (string, error) {
	file, anchor, _ := strings.Cut(target, "#")
	if file == "" || strings.Contains(file, ":") {
		return target, nil
	}
	file = path.Join(folder, file)
	if _, is := files[file]; is {
		return target, nil
	}
	info, err := fs.Stat(root, file)
	if err != nil {
		return "", err
	}
	kind := "blob"
	if info.IsDir() {
		kind = "tree"
	}
	target = fmt.Sprintf(github, kind, file)
	if anchor != "" {
		target += "#" + anchor
	}
	return target, nil
}

// menu returns the parts of the menu by the pages that they belong to: the groups of docs/README.md, then the pages that no
// list has; and below the page docs/internals/README.md the pages that it lists.
func menu(files map[string]string) map[string]string {
	const home, index, internals = "README.md", "docs/README.md", "docs/internals/README.md"
	lists, listed := map[string]string{}, map[string]bool{home: true}
	list := func(page, caption string, entries []string) {
		for _, entry := range entries {
			listed[strings.TrimPrefix(entry, "/")] = true
		}
		lists[page] += "\n```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + strings.Join(entries, "\n") + "\n```\n"
	}
	list(internals, "Internals", linked(files, internals, files[internals]))
	// A group begins with what it is for: **You are new:**
	for _, group := range strings.Split(files[index], "\n**")[1:] {
		caption, text, _ := strings.Cut(group, ":**")
		list(home, caption, linked(files, index, text))
	}
	var rest []string
	for _, name := range pagesOf(files) {
		if !listed[name] {
			rest = append(rest, "/"+name)
		}
	}
	list(home, "The project", rest)
	return lists
}

// linked returns the pages of its folder to which a part of a page links, and other sites with their titles.
func linked(files map[string]string, page, part string) (entries []string) {
	folder := path.Dir(page) + "/"
	for _, found := range regexp.MustCompile(`\[([^]]*)\]\(([^)\s]+)\)`).FindAllStringSubmatch(part, -1) {
		name := path.Join(folder, found[2])
		if _, is := files[name]; is && strings.HasPrefix(name, folder) {
			entries = append(entries, "/"+name)
		} else if strings.Contains(found[2], "://") {
			entries = append(entries, fmt.Sprintf("%s <%s>", found[1], found[2]))
		}
	}
	return entries
}
