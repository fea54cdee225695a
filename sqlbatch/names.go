package sqlbatch

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxShards is the most shards of a queue.
const MaxShards = 256

// MaxName is the most bytes of a queue's name. The longest name that chanq derives from it, that of an index, fits the 63
// bytes of PostgreSQL.
const MaxName = 40

// A name has no double underscore: all other tables and indexes have one, so that no two queues collide.
var queueName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// CheckNames returns what is wrong with a queue's or schema's name, or nil.
func CheckNames(n Names) error {
	if len(n.Queue) > MaxName {
		return fmt.Errorf("queue name %.20q… of %d bytes: at most %d", n.Queue, len(n.Queue), MaxName)
	}
	if !queueName.MatchString(n.Queue) {
		return fmt.Errorf("queue name %q: must be words of a-z and 0-9 joined by single underscores, the first one beginning with a letter", n.Queue)
	}
	if n.Slots < 0 || n.Slots > MaxSlots {
		return fmt.Errorf("%d slots: at most %d", n.Slots, MaxSlots)
	}
	if n.Shards < 0 || n.Shards > MaxShards || n.Shards == 0 && n.Shard != 0 || n.Shards > 0 && (n.Shard < 0 || n.Shard >= n.Shards) {
		return fmt.Errorf("shard %d of %d: must be from 0 to the last of at most %d", n.Shard, n.Shards, MaxShards)
	}
	if len(n.Schema) > 63 || !utf8.ValidString(n.Schema) || strings.ContainsFunc(n.Schema, breaksLines) {
		return fmt.Errorf("schema name %.63q of %d bytes: must be at most 63, of UTF-8 without control characters and line breaks", n.Schema, len(n.Schema))
	}
	return nil
}

// breaksLines reports whether r must not be in a name that is printed as a part of a script. After a line break the rest of
// the name would be a separate line, which sqlcmd might take for the end of a batch, even inside quotes.
func breaksLines(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp)
}
