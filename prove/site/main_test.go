package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// repository returns a small repository with this text below the title of docs/guides/order.md.
func repository(text string) fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"README.md":                "# shop\n",
		"SECURITY.md":              "# Security\n",
		"docs/README.md":           "# Index\n\n**You read:** [order](guides/order.md), [all](https://example.org/all),\n[home](../README.md)\n\n**You ask:**\n\n- [Inside](internals/README.md)\n",
		"docs/guides/order.md":     "# Order\n\n" + text,
		"docs/internals/README.md": "# Inside\n\n- [why](why.md), not [order](../guides/order.md)\n",
		"docs/internals/why.md":    "# Why\n",
		"docs/pictures/way.svg":    "<svg/>",
		"docs/rights/roles.sql":    "SELECT 1",
		"examples/hello/main.go":   "package main",
		"examples/README.md":       "# Examples\n",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func TestTheSiteHasThePagesAndPicturesOfTheDocuments(t *testing.T) {
	files, err := prepare(repository(""))
	require.NoError(t, err)
	require.Equal(t, []string{"README.md", "SECURITY.md", "docs/README.md", "docs/guides/order.md", "docs/internals/README.md",
		"docs/internals/why.md", "docs/pictures/way.svg"}, slices.Sorted(maps.Keys(files)))
}

func TestOnlyLinksThatLeaveTheSiteChange(t *testing.T) {
	for text, want := range map[string]string{
		"[`home`](../../README.md#x)":      "[`home`](../../README.md#x)",
		"[here](#order)":                   "[here](#order)",
		"![way](../pictures/way.svg)":      "![way](../pictures/way.svg)",
		"[there](https://example.org/a.b)": "[there](https://example.org/a.b)",
		"[program](../../examples/hello/main.go), [roles](../rights/roles.sql)": "[program](https://github.com/chanq/chanq/blob/main/examples/hello/main.go), " +
			"[roles](https://github.com/chanq/chanq/blob/main/docs/rights/roles.sql)",
		"[folder](../rights)":                                         "[folder](https://github.com/chanq/chanq/tree/main/docs/rights)",
		"[no page](../../examples/README.md#examples)":                "[no page](https://github.com/chanq/chanq/blob/main/examples/README.md#examples)",
		"[![badge](https://example.org/a.svg)](https://example.org/)": "[badge](https://example.org/)",
		"`f[int](x)` and ``":                                          "`f[int](x)` and ``",
		"```go\n// [not](a) `link\n```\n\n[is](#order)":               "```go\n// [not](a) `link\n```\n\n[is](#order)",
	} {
		files, err := prepare(repository(text))
		require.NoError(t, err, text)
		require.Equal(t, "# Order\n\n"+want, files["docs/guides/order.md"])
	}
}

func TestADeadLinkFails(t *testing.T) {
	for _, dead := range []string{"none.md", "../none.md#order", "../pictures/none.svg", "../../examples/none.go", "../../../README.md"} {
		_, err := prepare(repository("[order](order.md), [dead](" + dead + "), [order](order.md)"))
		require.ErrorContains(t, err, "docs/guides/order.md links to "+dead+": ")
	}
}

func TestABlockKeepsOnlyItsLanguage(t *testing.T) {
	files, err := prepare(repository("```sql postgres sends=1\nSELECT 1\n```\n\n```text\n```sql no fence\n```\n\n```sh run\ntrue\n```\n"))
	require.NoError(t, err)
	require.Equal(t, "# Order\n\n```sql\nSELECT 1\n```\n\n```text\n```sql no fence\n```\n\n```sh\ntrue\n```\n", files["docs/guides/order.md"])
}

func TestAPageWithoutATitleFails(t *testing.T) {
	files := repository("")
	files["SECURITY.md"] = &fstest.MapFile{Data: []byte("---\ntitle: Security\n---\n")}
	_, err := prepare(files)
	require.EqualError(t, err, "SECURITY.md does not begin with a heading, which is its title")
}

func TestTheMenuIsThatOfTheIndex(t *testing.T) {
	files, err := prepare(repository(""))
	require.NoError(t, err)
	part := func(caption, entries string) string {
		return "\n```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + entries + "\n```\n"
	}
	require.Equal(t, "# shop\n"+
		part("You read", "/docs/guides/order.md\nall <https://example.org/all>")+
		part("You ask", "/docs/internals/README.md")+
		part("The project", "/SECURITY.md\n/docs/README.md"), files["README.md"])
	require.True(t, strings.HasSuffix(files["docs/internals/README.md"], part("Internals", "/docs/internals/why.md")))
}

// The menu has every document of this repository once.
func TestTheMenuHasEachDocument(t *testing.T) {
	files, err := prepare(os.DirFS("../.."))
	require.NoError(t, err)
	lists := files["README.md"] + files["docs/internals/README.md"]
	for _, name := range pagesOf(files) {
		if name != "README.md" {
			require.Equal(t, 1, strings.Count(lists, "\n/"+name+"\n"), name)
		}
	}
	require.NotRegexp(t, "(?m)^```[a-z]+ ", strings.Join(slices.Collect(maps.Values(files)), "\n"))
}
