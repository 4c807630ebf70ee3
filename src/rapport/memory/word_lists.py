"""The words that decide whether a sentence about oneself says something lasting."""

from __future__ import annotations


def _all(words: str) -> frozenset[str]:
    """Words between spaces; `_` stands for a space within one."""
    return frozenset(word.replace("_", " ") for word in words.split())


NOT_NAMES = _all(
    """
    a about above absolutely afraid again agnostic alive all almost alone already also always am amazed an and angry any
    anonymous anxious at atheist aware away awake awesome back bad batman because bed bi bisexual bored born both broke
    broken buddhist busy but calm catholic certain christian clear cold coming confused conservative cool correct crazy
    curious dad dead democrat depressed desperate done down drunk dumb dying easy english excited exhausted fan fed feeling
    fine finished first for free fresh full furious gay getting glad going gone good great green grateful guessing guilty
    half happy healthy here hindu home honest hot hungry ill impressed in innocent interested is it jealous jewish joking
    just kidding late later leaving left lesbian liberal listening lonely looking lost lucky mad maybe me mom monday muslim
    my nervous new next nice no nobody not nothing now of off ok okay old on one online only open out outside over pagan
    perfect pleased poor positive pregnant pretty protestant proud quite ready really red republican responsible rich right
    running sad safe santa saturday scared serious shocked short shy sick silly single sleepy slow so socialist some somebody
    someone soon sorry still straight stressed stuck stupid such sunday super supposed sure surprised tall talking telling
    terrible thankful that the then there thinking thirsty this thrilled thursday tired to today tomorrow too torn
    trans trying tuesday ugly unable under unsure up upset used using very waiting wednesday weird well wet what where with
    wondering working worried wrong yes you young your yours friday
    ignore instructions previous system admin administrator root developer assistant user bot
    """
)
"""After "I'm", however it is capitalised. Beliefs, politics and love lives are kept out of memories altogether."""

DEMONYMS = _all(
    """
    afghan albanian algerian american argentinian argentine armenian australian austrian bangladeshi belgian bolivian bosnian
    brazilian british bulgarian cambodian cameroonian canadian chilean chinese colombian croatian cuban cypriot czech danish
    dutch ecuadorian egyptian english estonian ethiopian filipino finnish french georgian german ghanaian greek hungarian
    icelandic indian indonesian iranian iraqi irish israeli italian jamaican japanese jordanian kenyan korean kurdish latvian
    lebanese lithuanian malaysian maltese mexican moldovan mongolian moroccan nepalese nepali nigerian norwegian pakistani
    palestinian peruvian polish portuguese romanian russian scottish senegalese serbian singaporean slovak slovenian
    south_african south_korean spanish sudanese swedish swiss syrian taiwanese tanzanian thai tunisian turkish ugandan
    ukrainian uruguayan venezuelan vietnamese welsh zambian zimbabwean
    """
)

LANGUAGES = _all(
    """
    afrikaans albanian amharic arabic armenian basque bengali bosnian bulgarian cantonese catalan chinese croatian czech
    danish dutch english esperanto estonian farsi finnish french galician georgian german greek gujarati hebrew hindi
    hungarian icelandic indonesian irish italian japanese kannada khmer korean kurdish latin latvian lithuanian macedonian
    malay malayalam maltese mandarin marathi mongolian nepali norwegian pashto persian polish portuguese punjabi romanian
    russian serbian sinhala slovak slovene slovenian somali spanish swahili swedish tagalog tamil telugu thai tigrinya turkish
    ukrainian urdu uzbek vietnamese welsh wolof yiddish yoruba zulu asl bsl sign_language
    """
)

PROFESSIONS = _all(
    """
    accountant actor actress actuary administrator advisor analyst anaesthetist animator apprentice archaeologist architect
    archivist artist astronomer attorney author baker banker barber barista bartender beautician biologist blacksmith
    bookkeeper bookseller botanist brewer bricklayer broker builder butcher caregiver caretaker carer carpenter cashier
    chef chemist childminder chiropractor cleaner clerk coach coder comedian composer conductor consultant contractor cook
    copywriter counsellor counselor courier curator dancer dentist dermatologist designer detective developer dietician
    dietitian director diver doctor dramaturge driver drummer dressmaker economist editor electrician engineer entrepreneur
    estate_agent farmer fashion_designer filmmaker firefighter fisherman florist freelancer gardener geographer geologist
    glazier goldsmith graphic_designer guide gynaecologist hairdresser handyman historian housewife hygienist
    illustrator instructor interpreter intern investigator janitor jeweller journalist judge kindergarten_teacher
    lawyer lecturer librarian lifeguard linguist locksmith logistician machinist magician manager marketer mason mathematician
    mechanic mediator meteorologist midwife miner model musician nanny neurologist neuroscientist novelist nurse nutritionist
    officer optician optometrist osteopath paediatrician painter paralegal paramedic pastor pathologist pediatrician
    performer pharmacist philosopher photographer physician physicist physiotherapist pianist pilot plasterer plumber poet
    police_officer policeman policewoman politician porter postdoc postman potter priest principal producer professor
    programmer psychiatrist psychologist psychotherapist publisher radiographer radiologist realtor receptionist recruiter
    reporter researcher restaurateur roofer sailor salesman salesperson saleswoman scientist sculptor seamstress secretary
    shepherd shoemaker shopkeeper singer sociologist soldier solicitor sommelier statistician stockbroker student
    stylist surgeon surveyor tailor tattooist teacher technician therapist toolmaker trader trainer translator
    tutor undertaker upholsterer veterinarian vet vicar videographer violinist waiter waitress warehouseman watchmaker
    weaver webmaster welder woodworker writer yoga_teacher zookeeper zoologist
    """
)

FIELDS = _all(
    """
    it tech finance marketing education healthcare hr advertising banking insurance retail logistics sales construction
    hospitality consulting publishing journalism research law medicine engineering agriculture manufacturing tourism
    procurement cybersecurity software pharma biotech robotics social_work customer_support customer_service
    human_resources real_estate public_relations data_science software_development quality_assurance
    """
)

WORKPLACES = _all(
    """
    hospital clinic school kindergarten nursery university college bank bakery restaurant café cafe bar pub hotel factory lab laboratory
    library museum theatre theater office shop store bookshop supermarket warehouse studio agency company firm startup start-up
    farm brewery garage workshop pharmacy practice surgery salon airport port shipyard station court prison police fire_brigade
    army navy government ministry council city newspaper magazine publisher charity ngo church call_centre call_center
    care_home nursing_home zoo garden_centre law_firm insurance_company gym spa embassy railway post_office
    """
)

RELATIVES_OF_ONE = _all(
    "wife husband partner girlfriend boyfriend fiancé fiancée fiance fiancee spouse mother father mom mum dad "
    "mother-in-law father-in-law"
)
"""Of these a person has one at a time, so a newer one takes the older one's place."""
RELATIVES_OF_MANY = _all(
    """
    sister brother son daughter child kid baby grandmother grandfather grandma grandpa granny grandson granddaughter aunt
    uncle cousin niece nephew twin twin_sister twin_brother stepson stepdaughter stepmother stepfather stepbrother stepsister
    sister-in-law brother-in-law godson goddaughter godmother godfather
    """
)
ACQUAINTANCES = _all("flatmate roommate housemate best_friend friend boss colleague neighbour neighbor")
"""Their names belong to the user's life; what else is true of them is theirs."""
PETS = _all(
    "dog cat puppy kitten hamster rabbit bunny parrot budgie canary horse pony tortoise turtle guinea_pig goldfish snake gecko "
    "lizard ferret chinchilla rat mouse hen chicken goat donkey labrador poodle retriever terrier dachshund spaniel husky "
    "beagle collie bulldog pug corgi shepherd greyhound chihuahua mutt pet"
)
CHILDREN = _all(
    "kids children sons daughters boys girls siblings sisters brothers cats dogs horses rabbits hens chickens "
    "guinea_pigs grandchildren grandkids nieces nephews step-children stepchildren twins parrots budgies goats"
)

CONDITIONS = _all(
    """
    diabetes asthma epilepsy migraines migraine adhd add autism dyslexia arthritis depression anxiety ptsd ocd bipolar_disorder
    hypertension high_blood_pressure low_blood_pressure celiac_disease coeliac_disease crohn's_disease crohn's
    ulcerative_colitis ibs endometriosis pcos eczema psoriasis rosacea fibromyalgia lupus multiple_sclerosis ms parkinson's
    cancer breast_cancer hiv hepatitis anemia anaemia hemophilia haemophilia osteoporosis scoliosis sciatica tinnitus vertigo
    insomnia sleep_apnea sleep_apnoea narcolepsy gout hay_fever hypothyroidism hyperthyroidism hashimoto's gastritis
    acid_reflux glaucoma cataracts dyscalculia tourette's cystic_fibrosis sickle_cell_disease long_covid chronic_fatigue
    chronic_pain a_heart_condition a_pacemaker a_bad_knee a_bad_back bad_knees back_problems a_thyroid_condition
    type_1_diabetes type_2_diabetes lactose_intolerance gluten_intolerance rheumatoid_arthritis heart_disease kidney_disease
    """
)
HEALTH_ADJECTIVES = _all(
    """
    diabetic asthmatic epileptic deaf blind colour-blind colourblind color-blind colorblind dyslexic autistic
    lactose_intolerant gluten_intolerant lactose-intolerant gluten-intolerant coeliac celiac hard_of_hearing
    partially_sighted short-sighted near-sighted nearsighted neurodivergent anaemic anemic left-handed hypertensive
    immunocompromised a_wheelchair_user
    """
)
DIETS = _all("vegan vegetarian pescatarian pescetarian flexitarian teetotal")

FOODS = _all(
    """
    meat pork beef chicken lamb poultry fish seafood shellfish eggs dairy cheese milk butter gluten wheat bread pasta rice sugar
    sweets chocolate nuts peanuts soy tofu mushrooms tomatoes onions garlic olives broccoli cilantro coriander celery spinach
    bananas fruit vegetables salad spicy_food fast_food fried_food junk_food red_meat raw_fish animal_products breakfast
    carbs lactose honey kiwi kiwis strawberries avocado avocados
    """
)
ANIMAL_FOODS = _all("meat fish seafood eggs dairy poultry chicken beef pork animal_products")
"""Eating one of these again ends the diet that was without it."""
DRINKS = _all("alcohol coffee tea beer wine milk soda caffeine spirits juice energy_drinks cow's_milk")

SERVES_NO_MEMORY = _all(
    """
    mondays monday tuesdays mornings morning work working homework people idiots stupidity bullshit nonsense drama commitment
    exercise meetings effort boredom fun stress losing excuses sarcasm liars small_talk early_mornings hard_work bad_code
    getting_up waking_up sport sports responsibility responsibilities adulting cleaning cooking mathematics maths math
    """
)
"""Things that people call themselves allergic to when they are not."""

NOT_PLACES = _all(
    """
    fear hope denial peace harmony sin squalor poverty luxury misery exile hell heaven limbo chaos constant terror
    general fact theory particular reality truth short person bed the_moment the_past the_future the_now the_present
    hotels airports a_dream a_bubble a_simulation
    """
)

HABIT_VERBS = _all(
    """
    go run jog swim walk cycle bike play eat drink read watch cook bake do practise practice meditate work get wake take visit
    meet train commute call have paint draw write sing dance climb ski skate surf hike fish garden knit sew volunteer teach
    study exercise stretch lift row box sleep nap fast journal pray attend babysit skip listen travel drive ride shop clean
    start spend buy order bring
    """
)

INSTRUCTING = _all(
    """
    ignore ignoring disregard override instruction instructions prompt prompts system assistant chatbot bot jailbreak rule
    rules guideline guidelines developer_mode persona roleplay role-play obey comply respond reply reveal forget pretend
    must shall should
    """
)
"""A memory with one of these might be read as an order, so there is none."""
