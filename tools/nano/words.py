"""The closed word lists behind nano's grammar: who and what stories are about, and the facts.

Everything nano is expected to know stands in this file. The lists are plain data, so that a reader
can check at a glance what may be asked; grammar.py turns them into sentences.
"""

# --- stories -----------------------------------------------------------------------------------

ANIMALS = ["fox", "cat", "dog", "bear", "owl", "rabbit", "mouse", "frog", "duck", "horse", "wolf",
           "turtle", "goat", "hen", "lion", "hedgehog"]
NAMES = ["Ada", "Ben", "Mia", "Tom", "Lena", "Max", "Nora", "Leo", "Ida", "Sam", "Ella", "Otto",
         "Rosa", "Finn", "Lucy", "Paul", "Anna", "Hugo", "Zoe", "Emil", "Kim", "Tara", "Bo", "Ivy"]
FRIENDS = ["Sara", "Theo", "Mark", "Pia", "Toby", "Jon", "Lars", "Rob", "Lou", "Fred"]
PLACES = ["in the forest", "on a farm", "by the sea", "in the mountains", "near the river",
          "in a big city", "on a small island", "in a quiet village", "by the lake",
          "in the desert", "in a green valley", "under an old bridge"]
ADJECTIVES = ["small", "brave", "clever", "kind", "happy", "shy", "quick", "curious", "gentle",
              "funny"]
HOBBIES = ["sing", "swim", "read books", "climb trees", "count the stars", "play in the rain",
           "bake bread", "paint pictures", "run fast", "collect stones"]
THINGS = ["ball", "hat", "key", "bell", "kite", "lamp", "spoon", "ring", "scarf", "boat", "map",
          "drum"]
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "silver", "golden"]
SPOTS = ["under a tree", "behind a rock", "beside the road", "in the tall grass", "near a well",
         "under a bush", "next to a fence", "behind the old house"]
FOODS = ["bread", "soup", "cake", "apples", "berries", "honey", "nuts", "pears"]
TIMES = ["morning", "evening", "day", "night"]

# --- facts -------------------------------------------------------------------------------------

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "England": "London", "Ireland": "Dublin", "Portugal": "Lisbon", "Austria": "Vienna",
    "Poland": "Warsaw", "Greece": "Athens", "Sweden": "Stockholm", "Norway": "Oslo",
    "Denmark": "Copenhagen", "Finland": "Helsinki", "Hungary": "Budapest", "Belgium": "Brussels",
    "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Egypt": "Cairo",
    "Kenya": "Nairobi", "Canada": "Ottawa", "Mexico": "Mexico City", "Cuba": "Havana",
    "Peru": "Lima", "Chile": "Santiago", "Turkey": "Ankara", "Russia": "Moscow",
    "Thailand": "Bangkok", "Australia": "Canberra",
}
LANGUAGES = {
    "France": "French", "Germany": "German", "Italy": "Italian", "Spain": "Spanish",
    "England": "English", "Portugal": "Portuguese", "Poland": "Polish", "Greece": "Greek",
    "Sweden": "Swedish", "Norway": "Norwegian", "Denmark": "Danish", "Finland": "Finnish",
    "Japan": "Japanese", "China": "Chinese", "Russia": "Russian", "Turkey": "Turkish",
}
# thing: (subject with article, verb, colour)
THING_COLOURS = {
    "the sky": ("is", "blue"), "grass": ("is", "green"), "snow": ("is", "white"),
    "a banana": ("is", "yellow"), "a tomato": ("is", "red"), "coal": ("is", "black"),
    "a carrot": ("is", "orange"), "milk": ("is", "white"), "the sun": ("is", "yellow"),
    "blood": ("is", "red"), "a lemon": ("is", "yellow"), "chocolate": ("is", "brown"),
    "a frog": ("is", "green"), "an elephant": ("is", "grey"), "a flamingo": ("is", "pink"),
    "the sea": ("is", "blue"), "a strawberry": ("is", "red"), "an orange": ("is", "orange"),
    "a cucumber": ("is", "green"), "a plum": ("is", "purple"),
}
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December"]
SEASONS = ["spring", "summer", "autumn", "winter"]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
            "tenth", "eleventh", "twelfth"]
OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("fast", "slow"), ("happy", "sad"), ("day", "night"),
    ("up", "down"), ("left", "right"), ("open", "closed"), ("light", "dark"), ("old", "young"),
    ("high", "low"), ("long", "short"), ("full", "empty"), ("hard", "soft"), ("wet", "dry"),
    ("rich", "poor"), ("loud", "quiet"), ("strong", "weak"), ("early", "late"), ("near", "far"),
    ("clean", "dirty"), ("black", "white"), ("good", "bad"), ("first", "last"), ("true", "false"),
]
SOUNDS = {
    "cat": "meow", "dog": "woof", "cow": "moo", "sheep": "baa", "duck": "quack", "hen": "cluck",
    "pig": "oink", "horse": "neigh", "frog": "croak", "lion": "roar", "owl": "hoot",
    "mouse": "squeak", "bee": "buzz", "snake": "hiss",
}
PLURALS = {
    "cat": "cats", "dog": "dogs", "house": "houses", "tree": "trees", "box": "boxes",
    "mouse": "mice", "child": "children", "foot": "feet", "tooth": "teeth", "man": "men",
    "woman": "women", "goose": "geese", "sheep": "sheep", "fish": "fish", "leaf": "leaves",
    "wolf": "wolves", "baby": "babies", "city": "cities", "bus": "buses", "knife": "knives",
    "fox": "foxes", "book": "books", "apple": "apples", "berry": "berries",
}
BABIES = {
    "cat": "kitten", "dog": "puppy", "cow": "calf", "sheep": "lamb", "duck": "duckling",
    "hen": "chick", "horse": "foal", "pig": "piglet", "goat": "kid", "lion": "cub",
    "frog": "tadpole", "goose": "gosling",
}
LEGS = {"dog": 4, "cat": 4, "bird": 2, "duck": 2, "horse": 4, "spider": 8, "ant": 6, "bee": 6,
        "cow": 4, "snake": 0, "hen": 2, "fish": 0}
SIDES = {"triangle": 3, "square": 4, "rectangle": 4, "pentagon": 5, "hexagon": 6, "octagon": 8}
COUNTS = {
    ("days", "a week"): 7, ("months", "a year"): 12, ("hours", "a day"): 24,
    ("minutes", "an hour"): 60, ("seconds", "a minute"): 60, ("weeks", "a year"): 52,
    ("seasons", "a year"): 4, ("letters", "the alphabet"): 26, ("eggs", "a dozen"): 12,
}

# --- instructions and tools --------------------------------------------------------------------

WORDS = ["apple", "river", "window", "garden", "music", "bridge", "cloud", "pencil", "forest",
         "mirror", "candle", "basket", "stone", "summer", "winter", "table", "flower", "paper",
         "button", "orange", "silver", "castle", "ocean", "rabbit", "yellow", "planet", "pagoda",
         "market", "ladder", "island"]
CITIES = ["Paris", "Berlin", "Rome", "Madrid", "London", "Dublin", "Lisbon", "Vienna", "Warsaw",
          "Athens", "Stockholm", "Oslo", "Copenhagen", "Helsinki", "Budapest", "Brussels", "Tokyo",
          "Beijing", "Cairo", "Nairobi", "Ottawa", "Havana", "Lima", "Santiago", "Ankara",
          "Moscow", "Bangkok", "Canberra", "Hamburg", "Munich", "Boston", "Chicago", "Sydney",
          "Seoul", "San Francisco", "New York"]
SKIES = ["sunny", "cloudy", "rainy", "windy", "foggy", "snowy"]
