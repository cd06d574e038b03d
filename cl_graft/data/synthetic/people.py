"""Words for the people and places in the sentences of the pair tasks."""

from __future__ import annotations

__all__ = ["CITIES", "NAMES", "ROLES"]

NAMES = (
    "Maria", "Tom", "Aisha", "Viktor", "Elena", "Samuel", "Ingrid", "Omar", "Priya", "Lucas",
    "Hannah", "Diego", "Mei", "Arthur", "Fatima", "Nils", "Clara", "Kofi", "Rosa", "Ivan",
    "Leila", "Peter", "Yuki", "Daniel", "Greta", "Marcus", "Nadia", "Felix", "Olga", "Henry",
)  # fmt: skip
ROLES = (
    "nurse", "pilot", "baker", "lawyer", "gardener", "teacher", "plumber", "singer", "farmer",
    "librarian", "dentist", "sailor", "painter", "engineer", "tailor", "mayor", "coach", "editor",
    "waiter", "surgeon", "carpenter", "journalist", "driver", "chemist", "banker", "architect",
    "guard", "student", "manager", "violinist", "postman", "chef", "actor", "electrician",
)  # fmt: skip
CITIES = (
    "Oslo", "Lima", "Vienna", "Kyoto", "Lisbon", "Prague", "Dublin", "Nairobi", "Geneva", "Boston",
    "Warsaw", "Naples", "Bergen", "Toronto", "Athens", "Madrid", "Sydney", "Riga", "Cairo", "Hanoi",
)  # fmt: skip
