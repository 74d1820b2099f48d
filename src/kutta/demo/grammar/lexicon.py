"""The words of the built-in corpus: nouns, adjectives, names and adverbials, as data.

Every English word or phrase has exactly one German translation, so that a sentence has too.
Nouns are written 'english[/plural] article German plural [genitive|weak]' under their kind; kinds
and groups are what verbs and prepositions choose their nouns by.
"""

from typing import NamedTuple

from kutta.demo.grammar.morphology import Adjective, Noun, adjective, compound, listed, noun

NOUN_TABLE = {
    "person": """
        man/men der Mann Männer; woman/women die Frau Frauen; baker der Bäcker Bäcker;
        tourist der Tourist Touristen weak; student der Student Studenten weak;
        farmer der Bauer Bauern weak; singer der Sänger Sänger; painter der Maler Maler;
        policeman/policemen der Polizist Polizisten weak; king der König Könige;
        writer der Schriftsteller Schriftsteller; queen die Königin Königinnen;
        driver der Fahrer Fahrer; thief/thieves der Dieb Diebe""",
    "youth": """
        boy der Junge Jungen weak; girl das Mädchen Mädchen; child/children das Kind Kinder""",
    "parent": """
        mother die Mutter Mütter; father der Vater Väter; grandmother die Großmutter Großmütter;
        grandfather der Großvater Großväter""",
    "family": """
        brother der Bruder Brüder; sister die Schwester Schwestern; uncle der Onkel Onkel;
        aunt die Tante Tanten; son der Sohn Söhne; daughter die Tochter Töchter""",
    "relation": """
        friend der Freund Freunde; teacher der Lehrer Lehrer; doctor der Arzt Ärzte;
        neighbor der Nachbar Nachbarn weak; guest der Gast Gäste; boss der Chef Chefs Chefs;
        colleague der Kollege Kollegen weak""",
    "animal": """
        dog der Hund Hunde; cat die Katze Katzen; bird der Vogel Vögel; horse das Pferd Pferde;
        cow die Kuh Kühe; rabbit das Kaninchen Kaninchen; duck die Ente Enten;
        goat die Ziege Ziegen; pig das Schwein Schweine; hen das Huhn Hühner""",
    "wild": """
        mouse/mice die Maus Mäuse; lion der Löwe Löwen weak; bear der Bär Bären weak;
        elephant der Elefant Elefanten weak; wolf/wolves der Wolf Wölfe;
        monkey der Affe Affen weak""",
    "food": """
        apple der Apfel Äpfel; pear die Birne Birnen; egg das Ei Eier; cookie der Keks Kekse;
        potato/potatoes die Kartoffel Kartoffeln; tomato/tomatoes die Tomate Tomaten;
        carrot die Karotte Karotten; banana die Banane Bananen; roll das Brötchen Brötchen;
        cake der Kuchen Kuchen; sausage die Wurst Würste; pancake der Pfannkuchen Pfannkuchen""",
    "dish": "soup die Suppe Suppen; salad der Salat Salate",
    "provision": """
        bread das Brot -; cheese der Käse -; meat das Fleisch -; rice der Reis -;
        ham der Schinken -; chocolate die Schokolade -; butter die Butter -; honey der Honig -""",
    "drink": """
        water das Wasser -; milk die Milch -; coffee der Kaffee -; tea der Tee -;
        juice der Saft -; wine der Wein -; beer das Bier -; lemonade die Limonade -""",
    "text": """
        book das Buch Bücher; letter der Brief Briefe; newspaper die Zeitung Zeitungen;
        story die Geschichte Geschichten; poem das Gedicht Gedichte; novel der Roman Romane;
        magazine die Zeitschrift Zeitschriften; postcard die Postkarte Postkarten""",
    "thing": """
        key der Schlüssel Schlüssel; bag die Tasche Taschen; bottle die Flasche Flaschen;
        cup die Tasse Tassen; glass das Glas Gläser; plate der Teller Teller; pen der Stift Stifte;
        knife/knives das Messer Messer; spoon der Löffel Löffel; picture das Bild Bilder;
        box die Kiste Kisten; basket der Korb Körbe; umbrella der Regenschirm Regenschirme;
        ball der Ball Bälle; doll die Puppe Puppen; gift das Geschenk Geschenke;
        suitcase der Koffer Koffer; candle die Kerze Kerzen; mirror der Spiegel Spiegel""",
    "device": """
        lamp die Lampe Lampen; radio das Radio Radios; computer der Computer Computer;
        clock die Uhr Uhren; camera die Kamera Kameras; phone das Telefon Telefone""",
    "furniture": """
        table der Tisch Tische; chair der Stuhl Stühle; bed das Bett Betten; sofa das Sofa Sofas;
        cupboard der Schrank Schränke; shelf/shelves das Regal Regale; bench die Bank Bänke""",
    "part": """
        door die Tür Türen; window das Fenster Fenster; gate das Tor Tore; roof das Dach Dächer;
        wall die Wand Wände""",
    "clothing": """
        coat der Mantel Mäntel; shirt das Hemd Hemden; dress das Kleid Kleider;
        jacket die Jacke Jacken; hat der Hut Hüte; shoe der Schuh Schuhe; skirt der Rock Röcke;
        sweater der Pullover Pullover; scarf/scarves der Schal Schals Schals""",
    "vehicle": """
        car das Auto Autos; bus der Bus Busse Busses; train der Zug Züge; taxi das Taxi Taxis;
        bicycle das Fahrrad Fahrräder; ship das Schiff Schiffe; truck der Lastwagen Lastwagen;
        boat das Boot Boote""",
    "room": """
        kitchen die Küche Küchen; bedroom das Schlafzimmer Schlafzimmer; cellar der Keller Keller;
        bathroom das Badezimmer Badezimmer; living room das Wohnzimmer Wohnzimmer;
        office das Büro Büros""",
    "building": """
        house das Haus Häuser; school die Schule Schulen; hotel das Hotel Hotels;
        restaurant das Restaurant Restaurants; museum das Museum Museen; church die Kirche Kirchen;
        library die Bibliothek Bibliotheken; hospital das Krankenhaus Krankenhäuser;
        castle das Schloss Schlösser; theater das Theater Theater; shop der Laden Läden""",
    "outdoors": """
        garden der Garten Gärten; park der Park Parks Parks; forest der Wald Wälder;
        city die Stadt Städte; village das Dorf Dörfer""",
    "spot": """
        station der Bahnhof Bahnhöfe; river der Fluss Flüsse; lake der See Seen;
        beach der Strand Strände""",
    "open": """
        bridge die Brücke Brücken; square der Platz Plätze; balcony der Balkon Balkone;
        terrace die Terrasse Terrassen; island die Insel Inseln""",
    "plant": "tree der Baum Bäume; flower die Blume Blumen; rose die Rose Rosen",
    "weather": """
        rain der Regen -; snow der Schnee -; storm der Sturm - Sturms; cold die Kälte -;
        heat die Hitze -; noise der Lärm - Lärms""",
    "event": """
        break die Pause Pausen; meal das Essen Essen; party die Party Partys;
        concert das Konzert Konzerte; movie der Film Filme Films; trip die Reise Reisen;
        wedding die Hochzeit Hochzeiten; exam die Prüfung Prüfungen""",
}

# Sets of kinds, groups and single nouns that verbs and prepositions ask for.
GROUPS = {
    "people": "person youth parent family relation",
    "animals": "animal wild",
    "living": "people animals",
    "edible": "food dish provision",
    "goods": "text thing device furniture clothing vehicle",
    "portable": "text thing device",
    "standing": "bottle cup glass plate basket box suitcase lamp candle",
    "lying": "text key pen knife spoon doll camera",
    "hanging": "picture mirror clock lamp",
    "container": "cupboard",
    "seat": "chair sofa bench bed",
    "ground": "table chair bed sofa bench",
    "openable": "door window gate suitcase box bottle",
    "switchable": "lamp radio computer",
    "place": "room building outdoors spot open",
    "indoors": "room building",
    "sight": "building city village lake bridge island",
}

COMPOUND_TABLE = {
    "door": "kitchen cellar garden bathroom bedroom living_room office school hotel car glass",
    "window": "kitchen cellar bathroom bedroom living_room office church school car",
    "lamp": "kitchen bedroom living_room office garden bathroom",
    "table": "kitchen garden living_room office glass",
    "chair": "kitchen garden office",
    "cupboard": "kitchen bathroom bedroom office",
    "key": "car cellar office garden",
    "cake": "apple cherry chocolate cheese plum",
    "soup": "tomato potato vegetable onion bean",
    "salad": "tomato potato fruit onion bean",
    "juice": "apple orange tomato cherry vegetable",
    "bottle": "water milk wine beer",
    "glass": "water wine beer",
    "cup": "coffee tea",
    "book": "children's school art travel music",
    "letter": "love",
    "story": "love adventure",
    "novel": "love adventure",
    "magazine": "sports music fashion travel",
    "coat": "winter summer rain leather",
    "jacket": "winter summer rain leather sports",
    "dress": "winter summer",
    "shoe": "winter summer leather sports children's",
    "bag": "leather travel school sports",
    "teacher": "music sports art language",
    "driver": "taxi bus truck",
    "park": "city",
    "museum": "art city",
    "library": "city school",
    "theater": "city children's",
    "garden": "vegetable school hotel fruit",
}

# The first part of a compound with its linking sound, as it is glued on.
LINK_TABLE = """
    kitchen Küchen; cellar Keller; garden Garten; bathroom Badezimmer; bedroom Schlafzimmer;
    living_room Wohnzimmer; office Büro; school Schul; hotel Hotel; church Kirchen; car Auto;
    glass Glas; apple Apfel; cherry Kirsch; chocolate Schokoladen; cheese Käse; plum Pflaumen;
    tomato Tomaten; potato Kartoffel; vegetable Gemüse; onion Zwiebel; bean Bohnen; fruit Obst;
    orange Orangen; water Wasser; milk Milch; wine Wein; beer Bier; coffee Kaffee; tea Tee;
    children's Kinder; art Kunst; travel Reise; music Musik; love Liebes; adventure Abenteuer;
    sports Sport; fashion Mode; winter Winter; summer Sommer; rain Regen; leather Leder;
    language Sprach; taxi Taxi; bus Bus; truck Lastwagen; city Stadt"""

SIZES = "big/bigger groß größer; small/smaller klein kleiner"
AGES = "old/older alt älter; new/newer neu neuer; young/younger jung jünger"
COLORS = """
    red rot -; blue blau -; green grün -; yellow gelb -; black schwarz -; white weiß -;
    brown braun -; gray grau -"""
QUALITIES = """
    beautiful schön schöner; expensive teuer/teur teurer; cheap/cheaper billig billiger;
    heavy/heavier schwer schwerer; fast/faster schnell schneller; slow/slower langsam langsamer;
    warm/warmer warm wärmer; cold/colder kalt kälter; hot/hotter heiß heißer;
    fresh/fresher frisch frischer; good/better gut besser; delicious lecker leckerer;
    long/longer lang länger; short/shorter kurz kürzer; interesting interessant interessanter;
    boring langweilig langweiliger; clean/cleaner sauber sauberer; modern modern moderner;
    dirty/dirtier schmutzig schmutziger; bright/brighter hell heller;
    dark/darker dunkel/dunkl dunkler; quiet/quieter ruhig ruhiger; famous berühmt berühmter;
    friendly/friendlier freundlich freundlicher; clever klug klüger; rich/richer reich reicher;
    poor/poorer arm ärmer; strong/stronger stark stärker; tired müde/müd müder;
    hungry/hungrier hungrig hungriger; happy/happier glücklich glücklicher;
    sad/sadder traurig trauriger; brave/braver mutig mutiger; lazy/lazier faul fauler;
    polite höflich höflicher; wide/wider breit breiter"""

_ALL_COLORS = "red blue green yellow black white brown gray"
ADJECTIVE_USE = {
    "person": "old young clever friendly famous rich poor strong tired hungry happy sad brave lazy "
    "polite",
    "youth": "small clever friendly tired hungry happy sad brave lazy polite",
    "parent": "old clever friendly tired hungry happy sad brave polite",
    "family": "clever friendly tired hungry happy sad brave lazy polite",
    "relation": "old clever friendly rich poor tired hungry happy sad brave lazy polite famous",
    "animal": "big small old young hungry tired beautiful fast black white brown gray",
    "wild": "big small old young hungry tired black white brown gray",
    "food": "fresh good delicious big small cheap",
    "dish": "fresh good delicious cold warm",
    "provision": "fresh good delicious cheap expensive",
    "drink": "cold warm good expensive cheap",
    "text": "old new long short interesting boring beautiful famous",
    "thing": f"old new big small beautiful cheap expensive heavy {_ALL_COLORS}",
    "device": f"old new big small modern cheap expensive {_ALL_COLORS}",
    "furniture": f"old new big small heavy beautiful cheap expensive {_ALL_COLORS}",
    "part": f"old new big small beautiful {_ALL_COLORS}",
    "clothing": f"old new warm beautiful cheap expensive dirty clean {_ALL_COLORS}",
    "vehicle": f"old new big small fast slow cheap expensive {_ALL_COLORS}",
    "room": "big small clean dirty bright dark warm cold beautiful modern",
    "building": "old new big small beautiful modern famous white gray red",
    "outdoors": "big small old beautiful quiet famous",
    "spot": "big small beautiful quiet",
    "open": "big small old beautiful wide famous",
    "plant": "big small old beautiful",
    "weather": "",
    "event": "long short beautiful boring interesting",
}

NAMES = listed("Anna Peter Maria Paul Lisa Jan Julia Martin Laura Simon")
CITIES = {
    "Berlin": "Berlin",
    "Hamburg": "Hamburg",
    "Vienna": "Wien",
    "Munich": "München",
    "Zurich": "Zürich",
    "Rome": "Rom",
    "Paris": "Paris",
    "London": "London",
}


class Adjectives(NamedTuple):
    """What may describe a kind of noun; `stacked` are pairs such as 'big black'."""

    single: tuple[Adjective, ...]
    stacked: tuple[tuple[Adjective, Adjective], ...]


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(";")]


NOUNS: dict[str, Noun] = {
    (built := noun(entry, kind)).en[0]: built
    for kind, entries in NOUN_TABLE.items()
    for entry in _entries(entries)
}

LINKS: dict[str, str] = dict(entry.split() for entry in _entries(LINK_TABLE))
COMPOUNDS: dict[str, tuple[Noun, ...]] = {
    head: tuple(
        compound(first.replace("_", " "), LINKS[first], NOUNS[head]) for first in firsts.split()
    )
    for head, firsts in COMPOUND_TABLE.items()
}


def _adjectives(text: str) -> dict[str, Adjective]:
    return {(built := adjective(entry)).en: built for entry in _entries(text)}


_FIRST = _adjectives(SIZES) | _adjectives(AGES)
_COLOR = _adjectives(COLORS)
ADJECTIVES: dict[str, Adjective] = _FIRST | _COLOR | _adjectives(QUALITIES)


def _usable(names: list[str]) -> Adjectives:
    # Two adjectives of equal rank need a comma in German; size or age before a color does not.
    first = [_FIRST[name] for name in names if name in _FIRST]
    color = [_COLOR[name] for name in names if name in _COLOR]
    return Adjectives(
        tuple(ADJECTIVES[name] for name in names), tuple((a, b) for a in first for b in color)
    )


ADJECTIVES_OF: dict[str, Adjectives] = {
    kind: _usable(names.split()) for kind, names in ADJECTIVE_USE.items()
}


def nouns_of(words: str) -> tuple[Noun, ...]:
    """The nouns that kinds, groups or single English nouns name: 'people dog'."""
    found: dict[str, Noun] = {}
    for word in words.split():
        if word in GROUPS:
            found |= {each.en[0]: each for each in nouns_of(GROUPS[word])}
        elif word in NOUN_TABLE:
            found |= {name: each for name, each in NOUNS.items() if each.kind == word}
        else:
            found[word] = NOUNS[word]
    return tuple(found.values())
