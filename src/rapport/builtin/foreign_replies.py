"""Coming back to somebody who writes in another language: a few lines that fit whatever was said."""

LINES: dict[str, tuple[str, ...]] = {
    "German": ("Wie geht es dir inzwischen?", "Ich habe an dich gedacht. Wie geht es dir heute?", "Wie sieht es bei dir gerade aus?", "Wie war dein Tag bisher?"),
    "French": ("Comment vas-tu maintenant ?", "J'ai pensé à toi. Comment ça va aujourd'hui ?", "Où en es-tu maintenant ?", "Comment se passe ta journée ?"),
    "Spanish": ("¿Cómo estás ahora?", "He pensado en ti. ¿Qué tal estás hoy?", "¿Cómo va todo por ahí?", "¿Qué tal va tu día?"),
    "Italian": ("Come stai adesso?", "Ho pensato a te. Come va oggi?", "Come vanno le cose da te?", "Com'è andata la giornata finora?"),
    "Portuguese": ("Como você está agora?", "Pensei em você. Como está hoje?", "Como estão as coisas por aí?", "Como está sendo o seu dia?"),
    "Dutch": ("Hoe gaat het nu met je?", "Ik heb aan je gedacht. Hoe gaat het vandaag?", "Hoe staat het er bij je voor?", "Hoe is je dag tot nu toe?"),
}  # fmt: skip
