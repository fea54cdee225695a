package text

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const latin1 = "resum\xe9.pdf"

// These encode an unexported field themselves.
type (
	quoted struct{ text string }
	worded struct{ text string }
)

func (q quoted) MarshalJSON() ([]byte, error) { return json.Marshal(q.text) }
func (w worded) MarshalText() ([]byte, error) { return []byte(w.text), nil }

// These are bytes that encode themselves as text.
type (
	path   []byte
	script []byte
	digest [2]byte
)

func (p path) MarshalText() ([]byte, error)   { return p, nil }
func (s script) MarshalJSON() ([]byte, error) { return json.Marshal(string(s)) }
func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// ring refers to itself, where its own method encodes it.
type ring struct {
	Name string
	Next *ring
}

func (r *ring) MarshalJSON() ([]byte, error) { return json.Marshal([]string{r.Name, r.Next.Name}) }

type file struct {
	Name   string
	Backup *file `json:",omitempty"`
}

type mail struct {
	Files  []file
	ByName map[string]any
	Raw    json.RawMessage `json:",omitempty"`
	Scrap  string          `json:"-"`
}

func TestTextThatIsNotUTF8IsRefusedByItsPath(t *testing.T) {
	circle := &ring{Name: latin1}
	circle.Next = &ring{Name: "b", Next: circle}
	for says, v := range map[string]any{
		"string is not":                         latin1,
		"string is not UTF-8, and JSON":         "half of a surrogate pair: \xed\xa0\x80",
		"text.mail.Files[3].Name is not":        mail{Files: []file{{}, {}, {}, {Name: latin1}}},
		"text.mail.Files[0].Backup.Name is not": &mail{Files: []file{{Backup: &file{Name: latin1}}}},
		"text.mail.ByName[a][1][b] is not": mail{ByName: map[string]any{"a": []any{1,
			map[string]string{"b": latin1}}}},
		"text.mail.ByName[" + latin1 + "] is not":   mail{ByName: map[string]any{latin1: 1}},
		"[2]text.quoted[1].text is not":             [2]quoted{{"a"}, {latin1}},
		"map[text.worded]int[{" + latin1 + "}] is ": map[worded]int{{latin1}: 1},
		"text.ring.Name is not":                     circle,
		"text.path is not":                          path(latin1),
		"[]text.script[1] is not":                   []script{script("a"), script(latin1)},
		"map[string]text.path[p] is not":            map[string]path{"p": path(latin1)},
		"text.mail is not":                          mail{Raw: json.RawMessage(`"` + latin1 + `"`)},
		"struct { A string \"json:\\\",string\\\"\" }.A": struct {
			A string `json:",string"`
		}{latin1},
	} {
		data, err := Marshal(v)
		require.ErrorContains(t, err, says)
		require.Nil(t, data)
	}
}

func TestEveryOtherTextIsEncodedAsItIs(t *testing.T) {
	circle := &ring{Name: "\ufffd"}
	circle.Next = circle
	for _, v := range []any{
		nil, "", "é", "a\x00b", "the character \ufffd", `the text \ufffd`, []byte(latin1), [2]byte{0xff, 0xfe},
		map[string][]byte{"\ufffd": []byte(latin1)},
		mail{Files: []file{{Name: "\ufffd"}}, Scrap: latin1}, json.RawMessage(`"\ufffd \ud800"`),
		[]any{"\ufffd", digest{0xff, 0xfe}, path("é")}, (*file)(nil), []any{nil, "\ufffd"}, circle,
	} {
		want, err := json.Marshal(v)
		require.NoError(t, err)
		got, err := Marshal(v)
		require.NoError(t, err, "%q", want)
		require.Equal(t, want, got)
	}
	_, err := Marshal(func() {})
	require.Error(t, err)
}

func TestTheCheckOfTextCostsNoAllocation(t *testing.T) {
	v := &mail{Files: []file{{Name: strings.Repeat("name", 100)}}}
	fewest := func(marshal func(any) ([]byte, error)) float64 { // the race detector empties pools now and then
		least := math.Inf(1)
		for range 100 {
			least = min(least, testing.AllocsPerRun(1, func() { _, _ = marshal(v) }))
		}
		return least
	}
	require.Equal(t, fewest(json.Marshal), fewest(Marshal))
}

func BenchmarkMarshal(b *testing.B) {
	v := &mail{Files: []file{{Name: strings.Repeat("name", 50)}}}
	for name, marshal := range map[string]func(any) ([]byte, error){"check=no": json.Marshal, "check=yes": Marshal} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = marshal(v)
			}
		})
	}
}
