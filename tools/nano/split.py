"""Which arithmetic items and story heroes the corpus may use, and which only the questions.

What: `Split` draws both sets by seed. An item is (a, op, b), a hero is (animal, name, place).
"""

import random

from words import ANIMALS, NAMES, PLACES

SEED = 20240
LIMIT = 20  # arithmetic runs from 0 to this number
WIDER = 40  # and some sums run up to this one, so that the rule is learnt and not a table


class Split:
    """Which arithmetic items and story heroes are held out of the corpus, drawn by seed."""

    def __init__(self, seed=SEED):
        rng = random.Random(f"split/{seed}")
        pairs = [(a, b) for a in range(LIMIT + 1) for b in range(LIMIT + 1)]
        self.items = ([(a, "+", b) for a, b in pairs if a + b <= LIMIT]
                      + [(a, "-", b) for a, b in pairs if a >= b])
        self.heroes = [(a, n, p) for a in ANIMALS for n in NAMES for p in PLACES]
        self.held_items = set(rng.sample(self.items, len(self.items) // 11))
        self.held_heroes = set(rng.sample(self.heroes, len(self.heroes) // 10))
        self.train_items = [i for i in self.items if i not in self.held_items]
        self.wider_items = ([(a, "+", c - a) for c in range(LIMIT + 1, WIDER + 1)
                             for a in range(c + 1)]
                            + [(a, "-", b) for a in range(LIMIT + 1, WIDER + 1)
                               for b in range(a + 1)])
        self.train_heroes = [h for h in self.heroes if h not in self.held_heroes]
