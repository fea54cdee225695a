package engine

import "sort"

// leafSize and nodeSize bound the entries of a node; a full one is split.
const (
	leafSize = 128
	nodeSize = 128
)

// tree is an ordered map from encoded keys to records: a B+tree whose leaves are linked, so that a scan walks them.
// Leaves are not merged: a queue empties them from the left, and empty leaves are removed. The table's latch guards it.
type tree struct {
	root    *branch
	first   *leaf
	last    *leaf
	count   int
	changes uint64 // grows with each insertion and deletion; cursors compare it
}

// branch is an inner node: keys[i] is a lower bound of the keys in children[i+1].
type branch struct {
	keys     []string
	children []child
}

type child struct {
	inner *branch
	leaf  *leaf
}

type leaf struct {
	keys       []string
	recs       []*record
	prev, next *leaf
}

func newTree() *tree {
	l := &leaf{}
	return &tree{root: &branch{children: []child{{leaf: l}}}, first: l, last: l}
}

// find returns the leaf that contains key, or where key belongs.
func (t *tree) find(key string) *leaf {
	n := t.root
	for {
		c := n.children[n.childOf(key)]
		if c.leaf != nil {
			return c.leaf
		}
		n = c.inner
	}
}

func (n *branch) childOf(key string) int {
	return sort.Search(len(n.keys), func(i int) bool { return n.keys[i] > key })
}

func (l *leaf) search(key string) int { return sort.SearchStrings(l.keys, key) }

// put adds key and reports whether it was new.
func (t *tree) put(key string, r *record) bool {
	added, split, bound := t.root.put(t, key, r)
	if split.inner != nil || split.leaf != nil {
		t.root = &branch{keys: []string{bound}, children: []child{{inner: t.root}, split}}
	}
	if added {
		t.count++
		t.changes++
	}
	return added
}

func (n *branch) put(t *tree, key string, r *record) (added bool, split child, bound string) {
	at := n.childOf(key)
	c := n.children[at]
	if c.leaf != nil {
		added, split, bound = c.leaf.put(t, key, r)
	} else {
		added, split, bound = c.inner.put(t, key, r)
	}
	if split.inner == nil && split.leaf == nil {
		return added, child{}, ""
	}
	n.keys = insertAt(n.keys, at, bound)
	n.children = insertAt(n.children, at+1, split)
	if len(n.children) <= nodeSize {
		return added, child{}, ""
	}
	half := len(n.children) / 2
	right := &branch{
		keys:     append([]string(nil), n.keys[half:]...),
		children: append([]child(nil), n.children[half:]...),
	}
	bound = n.keys[half-1]
	n.keys = n.keys[:half-1]
	n.children = n.children[:half]
	return added, child{inner: right}, bound
}

func (l *leaf) put(t *tree, key string, r *record) (added bool, split child, bound string) {
	i := l.search(key)
	if i < len(l.keys) && l.keys[i] == key {
		l.recs[i] = r
		return false, child{}, ""
	}
	l.keys = insertAt(l.keys, i, key)
	l.recs = insertAt(l.recs, i, r)
	if len(l.keys) <= leafSize {
		return true, child{}, ""
	}
	// Appending is the common case; a split at the end then leaves full leaves.
	half := len(l.keys) / 2
	if i == len(l.keys)-1 && l.next == nil {
		half = len(l.keys) - 1
	}
	right := &leaf{
		keys: append(make([]string, 0, leafSize+1), l.keys[half:]...),
		recs: append(make([]*record, 0, leafSize+1), l.recs[half:]...),
		prev: l, next: l.next,
	}
	clear(l.keys[half:])
	clear(l.recs[half:])
	l.keys, l.recs = l.keys[:half], l.recs[:half]
	if right.next != nil {
		right.next.prev = right
	} else {
		t.last = right
	}
	l.next = right
	return true, child{leaf: right}, right.keys[0]
}

// remove deletes key and reports whether it existed.
func (t *tree) remove(key string) bool {
	if !t.root.remove(t, key) {
		return false
	}
	for len(t.root.children) == 1 && t.root.children[0].inner != nil {
		t.root = t.root.children[0].inner
	}
	t.count--
	t.changes++
	return true
}

func (n *branch) remove(t *tree, key string) bool {
	at := n.childOf(key)
	c := n.children[at]
	empty := false
	if c.leaf != nil {
		l := c.leaf
		i := l.search(key)
		if i == len(l.keys) || l.keys[i] != key {
			return false
		}
		l.keys = removeAt(l.keys, i)
		l.recs = removeAt(l.recs, i)
		if empty = len(l.keys) == 0 && (l.prev != nil || l.next != nil) && len(n.children) > 1; empty {
			t.unlink(l)
		}
	} else {
		if !c.inner.remove(t, key) {
			return false
		}
		empty = len(c.inner.children) == 1 && c.inner.children[0].leaf != nil &&
			len(c.inner.children[0].leaf.keys) == 0 && len(n.children) > 1
		if empty {
			t.unlink(c.inner.children[0].leaf)
		}
	}
	if empty {
		n.children = removeAt(n.children, at)
		n.keys = removeAt(n.keys, max(at-1, 0))
	}
	return true
}

func (t *tree) unlink(l *leaf) {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		t.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		t.last = l.prev
	}
}

// cursor is a place in a tree. It stays valid across changes: if the tree has changed, it searches its key again.
type cursor struct {
	t       *tree
	leaf    *leaf
	at      int
	changes uint64
}

// after moves to the first entry whose key is above key, or not below it if orEqual, and returns its key and record; a
// nil record is the end.
func (c *cursor) after(key string, orEqual bool) (string, *record) {
	if c.leaf != nil && c.changes == c.t.changes && c.at < len(c.leaf.keys) && !orEqual && c.leaf.keys[c.at] == key {
		c.at++
	} else {
		c.leaf = c.t.find(key)
		c.at = c.leaf.search(key)
		if !orEqual && c.at < len(c.leaf.keys) && c.leaf.keys[c.at] == key {
			c.at++
		}
		c.changes = c.t.changes
	}
	for c.at >= len(c.leaf.keys) {
		if c.leaf.next == nil {
			c.leaf = nil
			return "", nil
		}
		c.leaf, c.at = c.leaf.next, 0
	}
	return c.leaf.keys[c.at], c.leaf.recs[c.at]
}

// before moves to the last entry whose key is below key.
func (c *cursor) before(key string) (string, *record) {
	if c.leaf != nil && c.changes == c.t.changes && c.at >= 0 && c.at < len(c.leaf.keys) && c.leaf.keys[c.at] == key {
		c.at--
	} else {
		c.leaf = c.t.find(key)
		c.at = c.leaf.search(key) - 1
		c.changes = c.t.changes
	}
	return c.back()
}

// end moves to the last entry of the tree.
func (c *cursor) end() (string, *record) {
	c.leaf = c.t.last
	c.at = len(c.leaf.keys) - 1
	c.changes = c.t.changes
	return c.back()
}

func (c *cursor) back() (string, *record) {
	for c.at < 0 {
		if c.leaf.prev == nil {
			c.leaf = nil
			return "", nil
		}
		c.leaf = c.leaf.prev
		c.at = len(c.leaf.keys) - 1
	}
	return c.leaf.keys[c.at], c.leaf.recs[c.at]
}

func insertAt[T any](s []T, i int, v T) []T {
	var zero T
	s = append(s, zero)
	copy(s[i+1:], s[i:])
	s[i] = v
	return s
}

func removeAt[T any](s []T, i int) []T {
	var zero T
	copy(s[i:], s[i+1:])
	s[len(s)-1] = zero
	return s[:len(s)-1]
}
