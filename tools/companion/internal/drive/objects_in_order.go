package drive

import "cbt-plugins/companion/internal/spec"

// looks is how many numbers one choice looks at, at most, while they are at work or unknown.
const looks = 1000

// inOrder takes the next object of s() or r(), of one space after the other.
func (o *op) inOrder(c *choice) finding {
	o.cursor.Lock()
	defer o.cursor.Unlock()
	turn := int(o.turn.Add(1) % uint64(len(o.spans)))
	result := dry
	if o.spec.Select.How == spec.Once {
		result = over
	}
	for i := range o.spans {
		p := &o.spans[(turn+i)%len(o.spans)]
		var drawn finding
		if o.spec.Select.How == spec.Once {
			drawn = p.once(o, c)
		} else {
			drawn = p.sequential(o, c)
		}
		if drawn == good {
			return good
		}
		if drawn == busy {
			result = busy
		}
	}
	if result == over {
		o.done.Store(true)
	}
	return result
}

// following is the first number from p.next on that the operation could take; 0: none up to the last.
func (p *span) following(o *op) int64 {
	number := p.next
	if o.existing() && p.space.numbered() {
		number = p.space.live.Next(number)
	}
	if number < p.first || number > p.last {
		return 0
	}
	return number
}

// take begins with this number if it may.
func (p *span) take(o *op, number int64, c *choice) bool {
	s := p.space
	if s.numbered() {
		if !o.reads() && !s.free(number, o.spec.Writes()) {
			return false
		}
		c.lived = s.begin(o.spec.Op, number)
	}
	c.space, c.number = s, number
	return true
}

func (p *span) sequential(o *op, c *choice) finding {
	s := p.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.spec.Writes() && !s.room() {
		return busy
	}
	result := dry
	wrapped := false
	for range looks {
		number := p.following(o)
		if number == 0 {
			if wrapped {
				return result
			}
			wrapped = true
			p.next = p.first
			continue
		}
		p.next = number + 1
		if p.take(o, number, c) {
			return good
		}
		result = busy
	}
	return busy
}

func (p *span) once(o *op, c *choice) finding {
	s := p.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.spec.Writes() && !s.room() {
		if s.claimed == 0 {
			return over
		}
		return busy
	}
	for range looks {
		number := p.following(o)
		if number == 0 {
			break
		}
		p.next = number + 1
		if p.take(o, number, c) {
			return good
		}
		if _, open := s.unknown[number]; !open {
			p.later = append(p.later, number)
		}
	}
	if p.following(o) != 0 {
		return busy
	}
	for i := 0; i < len(p.later); i++ {
		number := p.later[i]
		_, open := s.unknown[number]
		gone := open || o.existing() && !s.live.Has(number)
		if !gone && !p.take(o, number, c) {
			continue
		}
		p.later[i] = p.later[len(p.later)-1]
		p.later = p.later[:len(p.later)-1]
		if !gone {
			return good
		}
		i--
	}
	if len(p.later) > 0 {
		return busy
	}
	return over
}
