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

var queueName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// CheckNames says what is wrong with a queue's or schema's name, or nil.
func CheckNames(n Names) error {
	if most := 63; len(n.Queue) > most {
		return fmt.Errorf("queue name %.20q… of %d bytes: at most %d", n.Queue, len(n.Queue), most)
	}
	if !queueName.MatchString(n.Queue) {
		return fmt.Errorf("queue name %q: must match [a-z][a-z0-9_]{0,62}", n.Queue)
	}
	for _, suffix := range []string{"_dead", "_done", "_seq", "_messages", "_send"} {
		if strings.HasSuffix(n.Queue, suffix) {
			return fmt.Errorf("queue name %q: the ending %s is taken by what belongs to queue %q", n.Queue, suffix, strings.TrimSuffix(n.Queue, suffix))
		}
	}
	if n.Queue == "queues" || n.Queue == "members" || n.Queue == "slots" || n.Queue == "samples" {
		return fmt.Errorf("queue name %q: taken by the table of %s", n.Queue, n.Queue)
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

// breaksLines tells what must not be in a name that is printed as a part of a
// script: a line break would let the rest of the name be a line of its own, which
// sqlcmd may take for the end of a batch, inside of quotes, too.
func breaksLines(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp)
}
